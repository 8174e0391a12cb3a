#!/bin/sh
# update.sh VERSION: writes go.mod and go.sum for another release of Kubernetes (then set VERSION in harness/binaries.py).
# Kubernetes' own go.mod points its staging modules into its repository; here they are the published ones of that release.
set -eu
version=${1:?usage: update.sh VERSION, such as 1.37.2}
cd "$(dirname "$0")"
upstream=$(go mod download -json "k8s.io/kubernetes@v$version" | sed -n 's/^.*"GoMod": "\(.*\)".*$/\1/p')
{
  printf 'module localkube\n\n'
  grep '^go ' "$upstream"
  printf '\nrequire (\n\tk8s.io/kubernetes v%s\n' "$version"
  sed -n 's#^\t\(go.etcd.io/etcd/server/v3 [^ ]*\).*#\t\1#p' "$upstream"
  printf ')\n\nreplace (\n'
  sed -n 's#^\t\(k8s.io/[a-z-]*\) => ./staging.*#\t\1 => \1 v0.'"${version#1.}"'#p' "$upstream"
  printf ')\n'
} > go.mod
GOFLAGS=-mod=mod go mod tidy
