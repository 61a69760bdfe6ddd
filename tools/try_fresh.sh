#!/usr/bin/env bash
# Runs what the README promises in a new Debian 12 with nothing installed, as a new user would, and prints the times.
#   tools/try_fresh.sh FOLDER                  script/demo, script/test and script/package, each alone on a
#                                              fresh system, and the archive on one that never saw the source
#   tools/try_fresh.sh FOLDER COMMAND [ARG…]   that command alone, in a clone on a fresh system
# FOLDER must not exist; it will hold the systems (about 3 GB each) and stays for a look: remove it after. Needs
# root, debootstrap, and a host with apt on Debian, whose mirror it uses. What is copied is the last commit.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=${1:?usage: tools/try_fresh.sh FOLDER [COMMAND [ARG…]]}
shift
[ "$(id -u)" -eq 0 ] || { echo "try_fresh: needs root, for chroot" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "try_fresh: install debootstrap" >&2; exit 1; }
[ ! -e "$folder" ] || { echo "try_fresh: $folder exists: name a new folder" >&2; exit 1; }

# The host's own mirror: the first Debian source in its lists.
mirror=$(apt-get indextargets --format '$(SITE) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
  awk '$2 ~ /^bookworm/ && $2 !~ /security/ && $3 == "main" { print $1; exit }')
[ -n "$mirror" ] || { echo "try_fresh: the host has no apt source for bookworm" >&2; exit 1; }

mkdir -p "$folder"
folder=$(realpath "$folder")
base=$folder/base results=$folder/results.txt
debootstrap --variant=minbase bookworm "$base" "$mirror"
# Apt and network of the host, so that the guest reaches the same mirror in the same way.
for file in /etc/resolv.conf /etc/hosts; do
  [ ! -f "$file" ] || cp -L "$file" "$base$file"
done
find /etc/apt/apt.conf.d -type f -name '*prox*' -exec cp {} "$base/etc/apt/apt.conf.d/" \;

new_system() {  # NAME: its folder, a copy of the base
  cp -a --reflink=auto "$base" "$folder/$1"
}

# Mounts live in a namespace of their own and go with it; the tests open a terminal.
inside() {  # SYSTEM COMMAND…: in /root/work of the system
  local system=$1
  shift
  mkdir -p "$system/root/work"
  unshare --mount bash -euc '
    system=$1
    shift
    mount --bind /proc "$system/proc"
    mount --bind /dev "$system/dev"
    mount --bind /dev/pts "$system/dev/pts"
    exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
      chroot "$system" bash -c "cd /root/work && exec \"\$@\"" bash "$@"' bash "$system" "$@"
}

failed=0
timed() {  # WHAT SYSTEM COMMAND…
  local what=$1 system=$2 start=$SECONDS status=0
  shift 2
  echo "try_fresh: $what"
  inside "$system" "$@" || status=$?
  printf '%6d s  exit %3d  %s\n' $((SECONDS - start)) "$status" "$what" | tee -a "$results"
  [ "$status" -eq 0 ] || failed=1
}

in_clone() {  # NAME WHAT COMMAND…: timed, on a fresh system with a clone
  local name=$1 what=$2
  shift 2
  new_system "$name"
  git clone -q --no-local . "$folder/$name/root/work"
  timed "$what" "$folder/$name" "$@"
}

if [ $# -gt 0 ]; then
  in_clone command "$*" "$@"
else
  in_clone demo "script/demo" script/demo
  in_clone "test" "script/test" script/test
  in_clone package "script/package" script/package
  new_system archive
  mkdir -p "$folder/archive/root/work"
  cp "$folder"/package/root/work/build/release/tegula-*.tar.gz "$folder/archive/root/work/"
  cp -r docs "$folder/archive/root/work/text"
  timed "the archive: unpacked, a model trained for a few seconds, its first text" "$folder/archive" bash -euc '
    tar xf tegula-*.tar.gz
    tegula=$(echo tegula-*/bin/tegula)
    cat text/*.md >text.md
    $tegula train --data text.md --tokenizer chars --n-layers 2 --n-heads 2 --d-model 64 --steps 200 --out model
    $tegula generate --model model --prompt "The " --max-tokens 40'
fi

echo
echo "On $(nproc) cores, $(uname -m), commit $(git rev-parse --short HEAD):"
cat "$results"
exit "$failed"
