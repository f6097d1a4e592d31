# The image of the jobs: torchrun is that of a user's venv, which all containers see.
FROM localhost/machine:1
ARG TORCH_VENV
ENV PATH=${TORCH_VENV}/bin:${PATH}
COPY tests/kube/node/train.py /train/train.py
COPY voda/report.py /train/voda/report.py
WORKDIR /train
