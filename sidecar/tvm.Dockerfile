# The adapter's image with TVM's runtime beside it, for compiled models that the adapter runs itself (spec.backend.tvm).
#
# Workers run in an environment of their own, /opt/runtime: name its interpreter as `python` of the artifact. The compiler,
# 260 MB, stays behind: `modelservice tvm build` runs elsewhere. Built like the other images, by `make images`.

ARG VERSION=0.0.0

FROM python:3.11-slim-bookworm AS build
RUN python3 -m venv /opt/installer \
 && python3 -m venv --without-pip /opt/runtime \
 && rm -f /opt/runtime/bin/[Aa]ctivate*
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INDEX=1 PIP_ROOT_USER_ACTION=ignore
COPY build/wheels/tvm /wheels
RUN /opt/installer/bin/pip --python /opt/runtime/bin/python install --no-compile --require-hashes \
      --find-links /wheels -r /wheels/requirements.txt \
 && cd /opt/runtime/lib/python3.*/site-packages \
 && rm -f tvm/lib/libtvm_compiler.so \
 && find . -depth -type d \( -name tests -o -name test -o -name include \) -exec rm -rf {} + \
 && find . -type f \( -name '*.pyi' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.c' -o -name '*.h' -o -name '*.a' \) -delete \
 && find /opt/runtime/bin -type f -delete \
 && chmod -R a+rX,go-w /opt/runtime \
 && TVM_USE_RUNTIME_LIB=1 /opt/runtime/bin/python -c "import tvm; assert tvm.cpu().exist" \
 && /opt/runtime/bin/python -m compileall -q --invalidation-mode unchecked-hash .

FROM modelservice/adapter:${VERSION}
COPY --from=build /opt/runtime /opt/runtime
ARG VERSION
LABEL org.opencontainers.image.title="modelservice adapter with TVM" \
      org.opencontainers.image.description="The adapter with the runtime of TVM for compiled models that it runs itself." \
      org.opencontainers.image.version="${VERSION}"
