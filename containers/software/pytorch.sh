#!/bin/sh
# Put Debian's PyTorch with all it needs, down to the C library, into folder DIR.
#
# usage: pytorch.sh DIR OWNER        as root in a container of the testbed's bookworm base
#
# Like a software tree that sites share (EESSI, say): it runs through its own loader, wherever it is
# mounted and whatever the site's Debian is. DIR/bin/python is its Python.
set -eu
dir=$1
owner=$2
trap 'chown -R "$owner" "$dir"' EXIT

apt-get -q update
DEBIAN_FRONTEND=noninteractive apt-get -qy install --no-install-recommends python3-torch

mkdir -p "$dir/bin" "$dir/usr/bin"
cp -a /usr/bin/python3.11 "$dir/usr/bin/"
# sympy is for tracing, LLVM's users and drivers of video cards are for OpenCV: none is used here.
tar -C / -c --exclude='*/sympy/*' --exclude='usr/lib/libtorch-test' --exclude='*/torch/bin/*test*' \
    --exclude='usr/lib/*/dri' --exclude='usr/lib/*/mfx' --exclude='*/__pycache__' \
    --exclude='usr/lib/*/perl*' --exclude='usr/lib/systemd' --exclude='usr/lib/apt' usr/lib |
    tar -C "$dir" -x

loader=$(echo /usr/lib/*/ld-linux-*.so.*)
libraries=${loader%/*}
cat >"$dir/bin/python" <<END
#!/bin/sh
tree=\$(dirname "\$(dirname "\$(readlink -f "\$0")")")
lib=\$tree$libraries
export PYTHONHOME="\$tree/usr" PYTHONNOUSERSITE=1 PYTHONDONTWRITEBYTECODE=1
exec "\$tree$loader" --library-path "\$lib:\$tree/usr/lib:\$lib/blas:\$lib/lapack" \\
    "\$tree/usr/bin/python3.11" "\$@"
END
chmod 0755 "$dir/bin/python"
# Programs that start Python again (torchrun, multiprocessing) must go through the loader, too.
rm -f "$dir/usr/lib/python3.11/sitecustomize.py"
cat >"$dir/usr/lib/python3.11/sitecustomize.py" <<'END'
import os, sys

sys.executable = os.path.join(os.path.dirname(sys.prefix), "bin", "python")
END
"$dir/bin/python" -c 'import torch; print("PyTorch", torch.__version__)'
"$dir/bin/python" -m compileall -q "$dir/usr/lib/python3.11" "$dir/usr/lib/python3" || true
