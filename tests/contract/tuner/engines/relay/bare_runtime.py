"""``bare_runtime.py BUNDLE INPUTS.npz OUT``: a C program that runs a bundle's graph with no TVM runtime at all.

Runs in the relay environment. Writes ``main.c``, to be linked with the bundle's ``mod.a``, and ``tensors.bin``, the
inputs and weights that it reads; it prints the network's only output, one number a line.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

RUNTIME = """\
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  void* data; int32_t device_type, device_id, ndim; uint8_t code, bits; uint16_t lanes;
  int64_t *shape, *strides; uint64_t byte_offset;
} Tensor;
typedef union { int64_t number; double real; void* handle; } Value;
typedef int (*Function)(Value*, int*, int, Value*, int*, void*);

static struct { const char* name; void* address; } known[512];
static int count;

int TVMBackendRegisterSystemLibSymbol(const char* name, void* address) {
  known[count].name = name; known[count++].address = address; return 0;
}
void* TVMBackendAllocWorkspace(int kind, int id, uint64_t size, int code, int bits) {
  return aligned_alloc(128, (size + 127) / 128 * 128);
}
int TVMBackendFreeWorkspace(int kind, int id, void* data) { free(data); return 0; }
int TVMBackendParallelLaunch(int (*body)(int, void*, void*), void* data, int tasks) {
  struct { void* sync; int32_t tasks; } group = {0, 1};
  return body(0, &group, data);
}
void TVMAPISetLastError(const char* message) { fprintf(stderr, "%s\\n", message); }
int TVMBackendGetFuncFromEnv(void* context, const char* name, void** function) { return -1; }
int TVMFuncCall(void* function, Value* v, int* c, int n, Value* r, int* rc) { return -1; }

static void call(const char* name, Tensor** tensors, int n) {
  Value values[32], result; int codes[32], code;
  for (int i = 0; i < n; ++i) { values[i].handle = tensors[i]; codes[i] = 7; }
  for (int i = 0; i < count; ++i)
    if (!strcmp(known[i].name, name)) {
      if (((Function)known[i].address)(values, codes, n, &result, &code, 0)) exit(3);
      return;
    }
  fprintf(stderr, "no function %s among %d\\n", name, count); exit(2);
}
"""


def program(graph: dict[str, Any], fed: list[str]) -> str:
    shapes, kinds = graph["attrs"]["shape"][1], graph["attrs"]["dltype"][1]
    assert set(kinds) == {"float32"}
    entries = graph["node_row_ptr"]
    lines = [f"static int64_t shape{i}[] = {{{', '.join(map(str, s)) or '1'}}};" for i, s in enumerate(shapes)]
    lines += [f"static Tensor t{i} = {{0, 1, 0, {len(s)}, 2, 32, 1, shape{i}, 0, 0}};" for i, s in enumerate(shapes)]
    lines.append('int main(int argc, char** argv) {\n  FILE* file = fopen(argv[1], "rb");')
    for position, shape in enumerate(shapes):
        lines.append(f"  t{position}.data = aligned_alloc(128, {(_bytes(shape) + 127) // 128 * 128});")
    names = [node["name"] for node in graph["nodes"]]
    for name in fed:
        place = entries[names.index(name)]
        lines.append(f"  if (fread(t{place}.data, {_bytes(shapes[place])}, 1, file) != 1) return 4;")
    for node, place in zip(graph["nodes"], entries, strict=False):
        if node["op"] == "tvm_op":
            lines.append(_step(node, place, entries, _bytes(shapes[place])))
    [[node, index, *_]] = graph["heads"]
    last = entries[node] + index
    lines.append(
        f'  for (int i = 0; i < {_bytes(shapes[last]) // 4}; ++i) printf("%.9g\\n", ((float*)t{last}.data)[i]);'
    )
    return RUNTIME + "\n".join([*lines, "  return 0;\n}\n"])


def _step(node: dict[str, Any], place: int, entries: list[int], size: int) -> str:
    given = [entries[source] + index for source, index, *_ in node["inputs"]]
    if node["attrs"]["func_name"] == "__nop":
        return f"  memcpy(t{place}.data, t{given[0]}.data, {size});"
    made = [place + each for each in range(int(node["attrs"]["num_outputs"]))]
    tensors = ", ".join(f"&t{each}" for each in [*given, *made])
    return f'  call("{node["attrs"]["func_name"]}", (Tensor*[]){{{tensors}}}, {len(given) + len(made)});'


def _bytes(shape: list[int]) -> int:
    size = 4
    for extent in shape:
        size *= extent
    return size


def main(bundle: Path, inputs: Path, out: Path) -> None:
    # Only where this runs as a program: the tests' own interpreter has neither.
    import numpy
    import tvm

    graph = json.loads((bundle / "mod.json").read_text())
    arrays = {
        name: array.numpy() for name, array in tvm.runtime.load_param_dict((bundle / "mod.params").read_bytes()).items()
    }
    arrays |= dict(numpy.load(inputs))
    fed = [graph["nodes"][position]["name"] for position in graph["arg_nodes"]]
    (out / "main.c").write_text(program(graph, fed))
    (out / "tensors.bin").write_bytes(b"".join(numpy.ascontiguousarray(arrays[name]).tobytes() for name in fed))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
