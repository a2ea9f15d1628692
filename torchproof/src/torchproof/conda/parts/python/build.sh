set -eu
python="python$SERIES"
mkdir -p "$PREFIX/bin" "$PREFIX/include" "$PREFIX/lib"
cp -a "$PYTHON_ROOT/bin/$python" "$PREFIX/bin/"
ln -s "$python" "$PREFIX/bin/python"
ln -s "$python" "$PREFIX/bin/python3"
cp -a "$PYTHON_ROOT/include/$python"* "$PREFIX/include/"
find "$PYTHON_ROOT/lib" -maxdepth 1 -name 'libpython*.so*' -exec cp -a {} "$PREFIX/lib/" \;
tar -C "$PYTHON_ROOT/lib" -cf - \
    --exclude='site-packages/*' --exclude='*.opt-?.pyc' --exclude="$python/test" \
    --exclude="$python/idlelib" --exclude="$python/ensurepip" --exclude='config-*/*.a' \
    "$python" | tar -C "$PREFIX/lib" -xf -
# An empty folder would not be packaged, and site needs it to be there.
echo 'Packages are installed here.' > "$PREFIX/lib/$python/site-packages/README.txt"

"$PATCHELF" --set-rpath '$ORIGIN/../lib' "$PREFIX/bin/$python"
find "$PREFIX/lib" -maxdepth 1 -name 'libpython*.so*' -type f -exec "$PATCHELF" --set-rpath '$ORIGIN' {} \;
find "$PREFIX/lib/$python/lib-dynload" -name '*.so' -exec "$PATCHELF" --set-rpath '$ORIGIN/../..' {} \;
strip --strip-debug "$PREFIX/bin/$python" "$PREFIX/lib/$python/lib-dynload/"*.so
grep -rlIF "$PYTHON_ROOT" "$PREFIX" | xargs -r sed -i "s#$PYTHON_ROOT#$PREFIX#g"
