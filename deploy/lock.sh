#!/usr/bin/env bash
# Writes requirements.txt: every package at one version, with the hash of each of its files, so that one file
# serves CPython 3.11 to 3.13 on x86_64 and aarch64. Run it by `make lock` after changing pyproject.toml.
set -euo pipefail
cd "$(dirname "$0")/.."

UV_VERSION=0.13.9
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

"${PYTHON:-python3}" -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install --quiet "uv==$UV_VERSION"
{
    echo "# Written by \`make lock\` from pyproject.toml; do not edit."
    "$scratch/venv/bin/uv" pip compile --quiet --no-config --universal --fork-strategy fewest \
        --python-version 3.11 --generate-hashes --no-header --no-annotate --group dev pyproject.toml
} > "$scratch/requirements.txt"
mv "$scratch/requirements.txt" requirements.txt
echo "lock: $(grep -c == requirements.txt) packages in requirements.txt"
