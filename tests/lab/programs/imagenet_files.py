"""Write small files like those of ImageNet, from the images of `make_tfrecords.py generate`: IMAGES DIRECTORY

Print the name, the class and the label of each image for validation.
"""

import io
import sys
import tarfile
from pathlib import Path

import numpy as np
from scipy.io import savemat

images, to = Path(sys.argv[1]), Path(sys.argv[2])
to.mkdir()
classes = sorted(folder.name for folder in (images / "train").iterdir())
# The numbers of the development kit are in another order than the names. The last one is that of a group of classes.
numbers = {name: number for number, name in enumerate([*reversed(classes), "n99999999"], 1)}


def add(archive, name, content):
    info = tarfile.TarInfo(name)
    info.size = len(content)
    archive.addfile(info, io.BytesIO(content))


with tarfile.open(to / "train.tar", "w") as outer:
    for name in classes:
        inner = io.BytesIO()
        with tarfile.open(fileobj=inner, mode="w") as archive:
            for path in sorted((images / "train" / name).iterdir()):
                add(archive, path.name, path.read_bytes())
        add(outer, f"{name}.tar", inner.getvalue())

# The classes alternate.
paths = sorted((images / "validation").glob("*/*.JPEG"), key=lambda path: path.name.partition("_")[::-1])
with tarfile.open(to / "validation.tar", "w") as archive:
    for number, path in enumerate(paths, 1):
        name, synset = f"ILSVRC2012_val_{number:08}.JPEG", path.parent.name
        add(archive, name, path.read_bytes())
        print(name, synset, classes.index(synset) + 1)

fields = [(field, "O") for field in ("ILSVRC2012_ID", "WNID", "words")]
table = io.BytesIO()
rows = [[(number, name, f"words of {name}")] for name, number in numbers.items()]
savemat(table, {"synsets": np.array(rows, dtype=fields)})
truth = "".join(f"{numbers[path.parent.name]}\n" for path in paths)
with tarfile.open(to / "devkit.tar.gz", "w:gz") as archive:
    add(archive, "ILSVRC2012_devkit_t12/data/meta.mat", table.getvalue())
    add(archive, "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt", truth.encode())
