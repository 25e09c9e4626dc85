import os
import lit.formats

config.name = "maco-ir"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".maco", ".program", ".test"]
config.test_source_root = os.path.dirname(__file__)
config.substitutions += [
    ("%macoc", os.path.join(config.maco_bin, "macoc")),
    ("%maco-opt", os.path.join(config.maco_bin, "maco-opt")),
    ("%maco-run", os.path.join(config.maco_bin, "maco-run")),
    ("%FileCheck", config.filecheck),
    ("%examples", os.path.join(config.source_dir, "examples", "graphs")),
]
# Users' CUDA kernels are read.
if os.path.exists(os.path.join(config.maco_bin, os.pardir, "lib", "libmaco_clang.so")):
    config.available_features.add("clang")
