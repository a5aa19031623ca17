#!/bin/sh
# Records what nvidia-smi says of this machine, as a folder of this directory: record.sh FOLDER
#
# Uses nothing but sh, nvidia-smi and, where it may, the kernel's log, cut to the lines of the
# driver. The files name GPUs by their UUIDs: put others in before you give them away.
set -eu
[ $# -eq 1 ] || { echo "usage: record.sh FOLDER" >&2; exit 64; }
mkdir -p "$1"
cd "$1"

# The columns of a table, the first line its names. A field that this driver does not know is left
# out, and said in refused.txt.
table() {
    file=$1 question=$2
    shift 2
    known=
    for field; do
        if said=$(nvidia-smi "--query-$question=$field" --format=csv,noheader,nounits 2>&1); then
            known=${known:+$known,}$field
        else
            printf '%s: status %s: %s\n' "$field" "$?" "$said" >> refused.txt
        fi
    done
    [ -n "$known" ] || return 0
    printf '%s\n' "$known" > "$file"
    nvidia-smi "--query-$question=$known" --format=csv,noheader,nounits | sed 's/, /,/g' >> "$file"
}

# The text of a question; where it fails, its status and text.
text() {
    file=$1
    shift
    if nvidia-smi "$@" > "$file" 2>&1; then return 0; fi
    printf 'status %s\n' "$?" >> "$file"
}

rm -f refused.txt
table gpus.csv gpu index uuid name pci.bus_id memory.used memory.total utilization.gpu \
    mig.mode.current ecc.errors.uncorrected.volatile.total ecc.errors.uncorrected.aggregate.total \
    retired_pages.pending retired_pages.double_bit.count pcie.link.gen.current \
    pcie.link.gen.max pcie.link.width.current pcie.link.width.max
table apps.csv compute-apps gpu_uuid pid used_memory
table rows.csv remapped-rows gpu_uuid remapped_rows.correctable remapped_rows.uncorrectable \
    remapped_rows.pending remapped_rows.failure
text topology.txt topo -m
text p2p.txt topo -p2p r
text links.txt nvlink -s
text link_errors.txt nvlink -e
text version.txt --version
timeout 1 cat /dev/kmsg 2>/dev/null | grep -E 'NVRM|nvidia' > kmsg.txt || :
