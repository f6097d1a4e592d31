# Sourced by the others: `with_packages NAME==VERSION ...` makes a venv with them, and puts it first in the PATH.
# FINDINGS_VENV names a venv that has them already. What a script writes goes into a folder that is deleted at its end.
set -eu
HERE=$(mktemp -d)
trap 'rm -rf "$HERE"' EXIT

with_packages() {
    venv=${FINDINGS_VENV:-$HERE/venv}
    if [ ! -x "$venv/bin/python" ]; then
        python3 -m venv "$venv"
        timeout 1800 "$venv/bin/pip" install --quiet --disable-pip-version-check "$@"
    fi
    export PATH="$venv/bin:$PATH" CUDA_VISIBLE_DEVICES='' OMP_NUM_THREADS=1
    cd "$HERE"
}

# Say what came, and end with 1 if it is no longer what was found.
expect() { # WHAT EXPECTED GOT
    if [ "$2" = "$3" ]; then
        echo "as found: $1: $3"
    else
        echo "CHANGED: $1: found was '$2', now it is '$3'" >&2
        exit 1
    fi
}
