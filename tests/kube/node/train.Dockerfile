# The image of the jobs: torchrun is the base's.
FROM localhost/machine:1
COPY tests/kube/node/train.py /train/train.py
COPY voda/report.py /train/voda/report.py
# torch 1.13 on Python 3.11 needs both to start at all.
ENV PET_REDIRECTS=1 PET_TEE=1
WORKDIR /train
