import pytest

from labelgrove.data.corpus import LabelIndex
from labelgrove.errors import ConfigError, DataError
from labelgrove.methods.linear.method import Linear

TEXTS = ["red shoes", "blue hat", "green scarf", "red hat"]
LABELS = [["c1"], ["c2"], ["c3"], ["c2", "c4"]]
INDEX = LabelIndex(
    ["c1", "c2", "c3", "c4"],
    names=["shoes", "hats", "scarves", "red things"],
    groups={"clothes": [0, 1, 2]},
)


@pytest.fixture(scope="module")
def model():
    return Linear().fit(TEXTS, LABELS, index=INDEX)


def test_masks_take_ids_names_and_groups(model):
    assert model.predict(["red hat"], k=2, allow=["c1", "red things"]).ids() == [["c4", "c1"]]
    assert set(model.predict(["red hat"], k=9, allow=["clothes"]).ids()[0]) == {"c1", "c2", "c3"}
    assert model.predict(["red hat"], k=9, deny=["clothes"]).ids() == [["c4"]]
    assert model.predict(["red hat"], k=9, allow=["clothes"], deny=["c1", "hats"]).names() == [
        ["scarves"]
    ]


@pytest.mark.parametrize(
    ("masks", "message"),
    [
        ({"allow": ["boots"]}, r"allow: unknown label 'boots'.*groups clothes"),
        ({"deny": [3]}, "deny: unknown label 3"),
        ({"allow": "hats"}, r"even for one: \['hats'\]"),
        ({"allow": []}, "no label is left"),
        ({"deny": ["clothes", "c4"]}, "no label is left"),
    ],
)
def test_bad_masks(model, masks, message):
    with pytest.raises(DataError, match=message):
        model.predict(["hat"], **masks)
    pytest.raises(DataError, model.score_labels, TEXTS, ["boots"]).match("labels: unknown label")


def test_threads_are_counted_or_all(model):
    one = model.predict(["red hat"], k=2, threads=1)
    for threads in (None, 0, -1):
        assert model.predict(["red hat"], k=2, threads=threads).ids() == one.ids()
    for threads in (-2, 1.5, True):
        with pytest.raises(ConfigError, match="threads: must be a whole number up to 1024"):
            model.predict(["red hat"], threads=threads)
