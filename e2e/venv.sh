#!/bin/sh
# Makes .venv with the locked versions; installs python3-venv first where the system's Python lacks it.
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
command -v "$PYTHON" > /dev/null || { echo "no $PYTHON on PATH: install Python 3.11 or newer" >&2; exit 1; }
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  { echo "$("$PYTHON" --version) is too old: specfleet needs Python 3.11 (set PYTHON=...)" >&2; exit 1; }
if ! "$PYTHON" -c 'import ensurepip, venv' 2> /dev/null; then
  echo "Installing python3-venv ..."
  [ "$(id -u)" = 0 ] || { echo "run as root once: apt-get install python3-venv" >&2; exit 1; }
  apt-get install -qq -y python3-venv > /dev/null 2>&1 || { apt-get update -qq && apt-get install -qq -y python3-venv > /dev/null; }
fi
echo "Making .venv with the locked Python packages (about a minute) ..."
[ -x .venv/bin/python ] || "$PYTHON" -m venv .venv
.venv/bin/pip install -q --disable-pip-version-check -r requirements-dev.lock
.venv/bin/pip install -q --disable-pip-version-check --no-deps -e .
