"""AG News in each form in which it is published."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.data.published import AG_TEST, AG_TRAIN, AG_TRAIN_JOINED, parquet, write_folder, write_tar
from xfed.data.dataset import Dataset
from xfed.data.sources.agnews import AgNews
from xfed.errors import InputError

JOINED = [
    "oil falls oil prices fall , again .",
    'peace talks talks \\ resume " soon " in geneva',
    "oil chip a new chip",
    "<unk> <unk> <unk> <unk> <unk>",
]
TEXTS = ["Oil falls Oil prices fall, again.", 'Peace talks Talks\\resume "soon" in Geneva', "Oil chip A new chip"]


def words(data: Dataset) -> list[str]:
    """Read the rows back as text, without <cls> and padding."""
    assert data.vocabulary is not None
    assert all(row[0] == 1 for row in data.inputs.tolist())
    return [" ".join(data.vocabulary[token] for token in row[1:] if token) for row in data.inputs.tolist()]


@pytest.fixture
def folder(root: Path) -> Path:
    """The published three-column files."""
    return write_folder(root / "ag_news", {"train.csv": AG_TRAIN, "test.csv": AG_TEST, "readme.txt": b""})


def check(data: Dataset) -> None:
    assert data.labels.tolist() == [2, 0, 3, 1]
    assert data.classes == ("World", "Sports", "Business", "Sci/Tech")
    assert (data.kind, data.input_shape) == ("text", (200,))
    assert words(data) == JOINED
    assert data.vocabulary is not None
    assert data.vocabulary[:6] == ("<pad>", "<cls>", "<unk>", "oil", '"', "chip"), "by frequency, then alphabet"
    assert "final" not in data.vocabulary, "the vocabulary is that of the training file"


def test_three_columns(folder: Path) -> None:
    check(AgNews().load())


def test_three_columns_under_the_other_name_or_packed(root: Path) -> None:
    files = {"train.csv": AG_TRAIN, "test.csv": AG_TEST}
    write_tar(root / "ag_news_csv.tar.gz", "ag_news_csv", files)
    check(AgNews().load())
    write_folder(root / "ag_news_csv", files)
    assert AgNews().find().path == root / "ag_news_csv"  # type: ignore[union-attr]
    check(AgNews().load())


def test_label_and_text_beside_three_columns(folder: Path) -> None:
    (folder / "train.csv").write_bytes(AG_TRAIN_JOINED)
    check(AgNews().load())


def test_a_header_over_three_columns(folder: Path) -> None:
    (folder / "train.csv").write_bytes(b"Class Index,Title,Description\n" + AG_TRAIN)
    check(AgNews().load())


@pytest.mark.parametrize("place", ["", "data/"])
def test_parquet_beside_csv(folder: Path, place: str) -> None:
    (folder / "train.csv").unlink()
    (folder / "data").mkdir()
    parquet(folder / f"{place}train-00000-of-00002.parquet", [2, 0], TEXTS[:2])
    parquet(folder / f"{place}train-00001-of-00002.parquet", [3], TEXTS[2:])
    check(AgNews().load())


def test_settings(folder: Path) -> None:
    data = AgNews(AgNews.Settings(max_length=4, vocabulary=5, text="title")).load()
    assert data.vocabulary == ("<pad>", "<cls>", "<unk>", "oil", "chip")
    assert data.inputs.tolist() == [[1, 3, 2, 0], [1, 2, 2, 0], [1, 3, 4, 0], [1, 2, 0, 0]]


def test_titles_only_where_both_files_have_them(folder: Path) -> None:
    (folder / "train.csv").write_bytes(AG_TRAIN_JOINED)
    with pytest.raises(InputError, match=r"agnews\.text is 'title', but '.*train\.csv' has no titles of their own"):
        AgNews(AgNews.Settings(text="title")).load()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (AG_TRAIN + b'"1","only two"\n', r"line 4 of '.*' has 2 columns; allowed: 3: class, title, description"),
        (AG_TRAIN_JOINED + b"1,a,b\n", r"line 5 of '.*' has 3 columns; allowed: 2: label, text"),
        (AG_TRAIN + b'"5","t","d"\n', r"line 4 of '.*' has the class '5'; allowed: 1 to 4"),
        (AG_TRAIN + b'"0","t","d"\n', r"line 4 of '.*' has the class '0'; allowed: 1 to 4"),
        (AG_TRAIN_JOINED + b"4,t\n", r"line 5 of '.*' has the class '4'; allowed: 0 to 3"),
        (AG_TRAIN + b'"x","t","d"\n', r"line 4 of '.*' has the class 'x'"),
        (b"", "has no rows"),
        (b"label,text\n", "has no rows"),
        (AG_TRAIN + b'"1","\xff","d"\n', "is not UTF-8 text"),
        (b'"1","t","' + b"x" * 200_000, "line 1 of '.*' is not CSV: field larger than field limit"),
    ],
)
def test_bad_rows_are_named(folder: Path, content: bytes, sentence: str) -> None:
    (folder / "train.csv").write_bytes(content)
    with pytest.raises(InputError, match=sentence) as caught:
        AgNews().load()
    assert str(folder / "train.csv") in str(caught.value)


def test_bad_parquet_is_named(folder: Path) -> None:
    (folder / "train.csv").unlink()
    path = folder / "train-00000-of-00001.parquet"
    parquet(path, [4], ["x"])
    with pytest.raises(InputError, match=r"row 0 of '.*parquet' has the class '4'; allowed: 0 to 3"):
        AgNews().load()
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(InputError, match="is not a whole Parquet file"):
        AgNews().load()
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table({"text": ["x"], "class": [1]}), path)
    with pytest.raises(InputError, match="has columns text, class; allowed: text, label"):
        AgNews().load()


def test_a_missing_file_is_named(folder: Path) -> None:
    (folder / "test.csv").unlink()
    with pytest.raises(InputError, match=r"ag_news' has no test\.csv and no test-\*\.parquet"):
        AgNews().load()
