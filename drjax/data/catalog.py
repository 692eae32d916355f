"""The named data sets: what they are, which files they are read from, and where those come from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from drjax.data import readers
from drjax.data.dataset import Dataset, Provenance


@dataclasses.dataclass(frozen=True)
class Source:
    """A named data set.

    Attributes:
        n: Number of records.
        shape: Shape of one record; (d,) for tables.
        class_names: What the labels 0, 1, ... mean; None where there are no labels.
        source: Who published it, and how to cite it.
        licence: What the publisher permits, as far as known.
        note: How the records are made from the files.
        read: Makes the data set from the bytes of `files`, see `drjax.data.readers`.
        folder: Where the files are, below the data folder; "" where nothing is read from disk.
        files: Checksum of each file, see `drjax.data.checksums.matches`.
        url: Address whose files, joined to it by their names, are the `downloads`; None if no stable one is known.
        downloads: SHA-256 of each file to download.
        convert: Makes the bytes of `files` from those of `downloads`; None if they are the same.
        obtain: Where to get the files, for those that cannot be downloaded.

    Example:
        >>> from drjax.data import SOURCES
        >>> SOURCES["digits"].n, SOURCES["digits"].shape
        (1797, (8, 8))
    """

    n: int
    shape: tuple[int, ...]
    class_names: tuple[str, ...] | None
    source: str
    licence: str
    note: str
    read: Callable[[str, readers.Files, Provenance], Dataset]
    folder: str = ""
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    url: str | None = None
    downloads: Mapping[str, str] = dataclasses.field(default_factory=dict)
    convert: Callable[[readers.Files], readers.Files] | None = None
    obtain: str = ""


_DIGITS = tuple("0123456789")
_MNIST = {
    "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
_FASHION = (
    "T-shirt/top",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)
_FASHION_MNIST = {
    "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
}
_ADULT = {
    "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
}

_LFW = Source(
    n=5749,
    shape=(50, 37),
    class_names=("female", "male"),
    source="Huang et al. (2007), Labeled Faces in the Wild; gender labels of Afifi & Abdelhamed (arXiv:1706.04277)",
    licence="no explicit licence; offered for research",
    note="One image per person (lfw:all has every image). Deep-funneled images cropped as scikit-learn crops them, "
    "in grey; label -1 where the gender is not known. Scaled by 255. Groups are persons.",
    read=readers.lfw,
    folder="lfw",
    files={"lfw_person5749_50x37.npz": "140fde3246f8ed9728ea5c0c23f4c8be062c209ea9ad980ed00ce5d8296cddbf"},
    obtain="the images are those of vis-www.cs.umass.edu/lfw, cropped and resized",
)

SOURCES: dict[str, Source] = {
    "digits": Source(
        n=1797,
        shape=(8, 8),
        class_names=_DIGITS,
        source="E. Alpaydin & C. Kaynak (1998), Optical Recognition of Handwritten Digits (test part), UCI",
        licence="CC BY 4.0; comes with scikit-learn",
        note="Scaled by 16.",
        read=readers.digits,
        obtain="nothing to download: it comes with scikit-learn",
    ),
    "mnist": Source(
        n=70_000,
        shape=(28, 28),
        class_names=_DIGITS,
        source="Y. LeCun, C. Cortes & C. Burges (1998), the MNIST database of handwritten digits",
        licence="commonly stated as CC BY-SA 3.0",
        note="60,000 training records, then 10,000 test records. Scaled by 255.",
        read=readers.mnist,
        folder="mnist",
        files=_MNIST,
        url="https://ossci-datasets.s3.amazonaws.com/mnist/",
        downloads=_MNIST,
    ),
    "fashion_mnist": Source(
        n=70_000,
        shape=(28, 28),
        class_names=_FASHION,
        source="H. Xiao, K. Rasul & R. Vollgraf (2017), Fashion-MNIST (arXiv:1708.07747)",
        licence="MIT",
        note="60,000 training records, then 10,000 test records. Scaled by 255.",
        read=readers.mnist,
        folder="fashion_mnist",
        files=_FASHION_MNIST,
        url="https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        downloads=_FASHION_MNIST,
    ),
    "cifar10": Source(
        n=11_000,
        shape=(32, 32, 3),
        class_names=readers.CIFAR10,
        source="A. Krizhevsky (2009), Learning multiple layers of features from tiny images",
        licence="no explicit licence; cite the technical report",
        note="The first 10,000 training records, then the first 1,000 test records. Scaled by 255.",
        read=readers.cifar10,
        folder="cifar10",
        files={"cifar10_10k_1k.npz": "arrays:171469eccdbc42c67c6ddddf99029fcb0f22ce159aff5541338c626eda68bfcc"},
        url="https://www.cs.toronto.edu/~kriz/",
        downloads={"cifar-10-binary.tar.gz": "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"},
        convert=readers.cifar10_from_archive,
    ),
    "lfw": _LFW,
    "lfw:all": dataclasses.replace(
        _LFW,
        n=13_233,
        shape=(25, 18),
        note="All images of all persons. Deep-funneled images cropped as scikit-learn crops them, in grey; label -1 "
        "where the gender is not known. Scaled by 255. Groups are persons.",
        files={"lfw_all13233_25x18.npz": "8fd49ee0aabba9275e27724a203aa14bb54cb37c89bc80749e2afd3c446004dc"},
    ),
    "utkface": Source(
        n=6000,
        shape=(32, 32),
        class_names=("male", "female"),
        source="Z. Zhang, Y. Song & H. Qi (2017), UTKFace",
        licence="non-commercial research only",
        note="A uniform random choice of 6,000 of the 23,708 aligned faces, in grey. Scaled by 255. Persons are not "
        "named, so one person may be on two sides of a split.",
        read=readers.utkface,
        folder="utkface",
        files={"utkface_6000_gray32.npz": "3e65984487ce7b74859da880231c1042e6f2bf98b431a5ad2abec969b5968e26"},
        obtain="the images are those of susanqq.github.io/UTKFace, resized",
    ),
    "nih_chest_xray": Source(
        n=1000,
        shape=(64, 64),
        class_names=("no finding", "pneumonia"),
        source="X. Wang et al. (2017), ChestX-ray8, NIH Clinical Center",
        licence="free to use with attribution to the NIH Clinical Center",
        note="500 images without finding and 500 with pneumonia, of 682 patients. Scaled by 255. Groups are patients.",
        read=readers.nih_chest_xray,
        folder="chest_xray",
        files={"nih_chestxray_1000_64x64.npz": "e72064bcb73ed4fefa4beb9b1095a551852edc551e5b317d093483cb41a47aeb"},
        obtain="the images are those of nihcc.app.box.com/v/ChestXray-NIHCC, resized",
    ),
    "cxr_mednist": Source(
        n=2000,
        shape=(64, 64),
        class_names=None,
        source="B. Erickson, Mayo Clinic, MedNIST; its chest X-rays are from the NIH set of X. Wang et al. (2017)",
        licence="CC BY-SA 4.0, as stated by its distributors; images of the NIH Clinical Center, with attribution",
        note="The first 2,000 images of class CXR, without one exact repetition. Scaled by 255. Patients are not "
        "named, so one patient may be on two sides of a split. Images may be those of nih_chest_xray: neither is "
        "held-out data for the other.",
        read=readers.cxr_mednist,
        folder="chest_xray",
        files={"cxr_mednist_2000_64x64.npz": "faf1ced65f57787388794e965dfe511b3004e833aaf2e20ec8111def04b0b365"},
        obtain="the images are those of the class CXR of MedNIST",
    ),
    "adult": Source(
        n=48_842,
        shape=(108,),
        class_names=("<=50K", ">50K"),
        source="B. Becker & R. Kohavi (1996), Adult (Census Income), UCI",
        licence="CC BY 4.0",
        note="32,561 training records, then 16,281 test records. Six numeric columns scaled by their own minimum and "
        'maximum, eight categorical ones one-hot encoded; an unknown value "?" is a category, no record is dropped.',
        read=readers.adult,
        folder="adult",
        files=_ADULT,
        url="https://archive.ics.uci.edu/ml/machine-learning-databases/adult/",
        downloads=_ADULT,
    ),
    "census": Source(
        n=1080,
        shape=(13,),
        class_names=None,
        source="R. Brand, J. Domingo-Ferrer & J. M. Mateo-Sanz (2002), CASC reference data sets",
        licence="public use file",
        note="Thirteen numeric columns scaled by their own minimum and maximum.",
        read=readers.census,
        folder="census_casc",
        files={"Census.csv": "40fb91564d4379274610e941161fd38729adb471bddb9c71d7c01ef142fd0f5b"},
        obtain="the records are CASCrefmicrodata of the R package sdcMicro, written as CSV",
    ),
    "gfe": Source(
        n=25_606,
        shape=(300,),
        class_names=("no expression", "expression"),
        source="F. Freitas, F. Barbosa & S. Peres (2014), Grammatical Facial Expressions, UCI",
        licence="CC BY 4.0",
        note="17 of the 18 videos (a_relative is missing): x, y in pixels and z in millimetres of 100 points, scaled "
        "by their own minimum and maximum. Two persons only, so groups are videos.",
        read=readers.gfe,
        folder="gfe",
        files={"gfe.npz": "ac9fba6993800f1b4e9691b971ed9c14b2ee5f9ce3c17297dc256407b55f74bd"},
        obtain="the records are those of UCI data set 317, recoded as integers",
    ),
}

ALIASES = {"lfw:person": "lfw"}
"""Other names of entries of `SOURCES`."""


def resolve(name: str) -> tuple[str, Source]:
    """The name and entry in `SOURCES` that `name` stands for.

    Raises:
        ValueError: no data set has this name.
    """
    name = ALIASES.get(name, name)
    if name not in SOURCES:
        raise ValueError(f"name must be one of {', '.join(SOURCES)}; got {name!r}")
    return name, SOURCES[name]
