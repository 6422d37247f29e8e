"""What a plan cannot measure in a second, with the source of each number.

``benchmarks/scale/plans.py`` compares plans with trainings: refit the numbers to what it prints.
"""

from __future__ import annotations

# A plan is a range, from the estimate divided by this to the estimate times this.
MARGIN = 1.6
# Documents of the samples that are trained, and the seconds after which one is large enough.
WARM_UP, FIRST_SAMPLE, LONGEST, LARGEST_SHARE = 30, 250, 0.5, 4
# Documents of the two samples of methods whose stages are not known.
TWO_SAMPLES = (100, 800)
# A ranker's time grows with documents to this power: a document costs 1.25 times more among 6,000
# of eurlex57k than among 1,000, and 1.14 times more among 8,000 of tibkat.
RANKER_GROWTH = 1.1
# A ranker over shortlists, per document, label and column, beside one below a tree: 2.1 to 2.8 ns
# and 0.56 to 0.8 (384 dense columns, 500 and 2,000 documents of eurlex57k and tibkat).
SHORTLIST_COST = 3.5
# Seconds of a learnt merge per validation document and member, with the lists that it merges: 0.6
# to 1 ms with 450 of them and two members (commits, eurlex57k, tibkat) on a fast core, twice that
# on a slow one.
MERGE = 1.5e-3

# Encoders. Seconds in which the first updates are compiled, on an H200 machine with 16 cores. Ten
# trainings of 6,000 and 9,000 documents there (benchmarks/results/plans.jsonl) took 0.57 to 1.06 of
# the middle of the whole range with these; with 20 to 75, which came from single updates, 0.48.
COMPILING = (10.0, 35.0)
# Tokens per second once it is compiled, beside the same update that is recorded: 11.5 ms for 9.6
# (packed, 12,700 tokens, benchmarks/NOTES.md).
COMPILED = 1.2
# Tokens per second of reading, beside learning that is not compiled: one pass of three on a CPU; on
# an H200 3.4 to 3.8 million beside 1.1 (eurlex57k and tibkat).
READING = {"cpu": 3.0, "cuda": 3.2}
# Loading the encoder, moving it, and the first batch: H200 trainings of neural.jsonl take so much
# longer than their stages and updates.
START = {"cpu": 0.5, "cuda": 8.0}
# On a CPU the timed batch has as many tokens as are this many products of tokens and parameters
# (about half a second on two cores); larger batches have the same speed.
TIMED_ON_CPU = 1e10
# Updates that are timed at most, the first without counting, and the seconds of a long one.
UPDATES, LONG_UPDATE = 4, 1.0
# The plain layer in place of heads has all labels, or as many as a shortlist if there are more.
WIDEST_HEAD, SHORTLIST = 30_000, 2_000
