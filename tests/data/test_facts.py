"""What a model remembers of its training data."""

from labelgrove.data.corpus import Corpus
from labelgrove.data.facts import TrainingFacts


def test_facts_are_counts_of_the_corpus_and_survive_the_disk():
    corpus = Corpus.from_lists(["x", "y", "z"], [["a"], ["a", "b"], []])
    facts = TrainingFacts.of(corpus.with_dense([[1.0, 2.0]] * 3))
    assert facts.frequencies.tolist() == [2, 1]
    assert (facts.documents, facts.from_text, facts.width, facts.grown) == (3, True, 2, 0)
    part = facts.state()
    again = TrainingFacts.from_state(part)
    assert (again.documents, again.width, again.from_text) == (3, 2, True)
    assert again.frequencies.tolist() == [2, 1]
    for name in ("width", "grown"):  # folders of the first release lack them
        del part.config[name]
    assert TrainingFacts.from_state(part).width == TrainingFacts.from_state(part).grown == 0
