#!/usr/bin/env bash
# Runs one of the scripts in a new Debian 12 with nothing installed, as a new user would.
#   tools/try_fresh.sh FOLDER [script/test | script/demo | any command]
# FOLDER must not exist; it will hold the system (about 3 GB) and stays for a look: remove it after.
# Needs root, debootstrap, and a host with apt on Debian, whose mirror it uses. What is copied is
# the last commit.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=${1:?usage: tools/try_fresh.sh FOLDER [command]}
shift
command=("${@:-script/test}")
[ "$(id -u)" -eq 0 ] || { echo "try_fresh: needs root, for chroot" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "try_fresh: install debootstrap" >&2; exit 1; }
[ ! -e "$folder" ] || { echo "try_fresh: $folder exists: name a new folder" >&2; exit 1; }

# The host's own mirror: the first Debian source in its lists.
mirror=$(apt-get indextargets --format '$(SITE) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
  awk '$2 ~ /^bookworm/ && $2 !~ /security/ && $3 == "main" { print $1; exit }')
[ -n "$mirror" ] || { echo "try_fresh: the host has no apt source for bookworm" >&2; exit 1; }

debootstrap --variant=minbase bookworm "$folder" "$mirror"
folder=$(realpath "$folder")
git clone -q --no-local . "$folder/tegula"
# Apt and network of the host, so that the guest reaches the same mirror in the same way.
for file in /etc/resolv.conf /etc/hosts; do
  [ -f "$file" ] && cp -L "$file" "$folder$file"
done
find /etc/apt/apt.conf.d -type f -name '*prox*' -exec cp {} "$folder/etc/apt/apt.conf.d/" \;

trap 'umount -l "$folder/dev/pts" "$folder/dev" "$folder/proc"' EXIT
mount --bind /proc "$folder/proc"
mount --bind /dev "$folder/dev"
mount --bind /dev/pts "$folder/dev/pts"  # the tests open a terminal

echo "try_fresh: ${command[*]} in $folder"
start=$SECONDS status=0
env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
  chroot "$folder" bash -c 'cd /tegula && exec "$@"' bash "${command[@]}" || status=$?
echo "try_fresh: exit $status after $((SECONDS - start)) s"
exit "$status"
