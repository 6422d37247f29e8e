"""Every metric written as its formula reads, one document and one label at a time.

``ranked[i]`` is document i's predicted labels, best first; ``true[i]`` the set of its labels with a
column; ``unknown[i]`` how many more it has. ``frequency[l]`` is label l's training count.
"""

import math


def precision(ranked, true, unknown, k):
    return sum(len(set(r[:k]) & t) / k for r, t in zip(ranked, true, strict=True)) / len(true)


def recall(ranked, true, unknown, k):
    total = 0.0
    for r, t, u in zip(ranked, true, unknown, strict=True):
        if len(t) + u:
            total += len(set(r[:k]) & t) / (len(t) + u)
    return total / len(true)


def r_precision(ranked, true, unknown, k):
    total = 0.0
    for r, t, u in zip(ranked, true, unknown, strict=True):
        if len(t) + u:
            total += len(set(r[:k]) & t) / min(k, len(t) + u)
    return total / len(true)


def ndcg(ranked, true, unknown, k):
    total = 0.0
    for r, t, u in zip(ranked, true, unknown, strict=True):
        dcg = sum(1 / math.log2(j + 1) for j, label in enumerate(r[:k], start=1) if label in t)
        ideal = sum(1 / math.log2(j + 1) for j in range(1, min(k, len(t) + u) + 1))
        if ideal:
            total += dcg / ideal
    return total / len(true)


def f1(ranked, true, unknown, k):
    total = 0.0
    for r, t, u in zip(ranked, true, unknown, strict=True):
        p = len(set(r[:k]) & t) / k
        rec = len(set(r[:k]) & t) / (len(t) + u) if len(t) + u else 0.0
        if p + rec:
            total += 2 * p * rec / (p + rec)
    return total / len(true)


def _f1(p, r):
    return 2 * p * r / (p + r) if p + r else 0.0


def micro(ranked, true, unknown, k):
    """(precision, recall, F1) over all pairs; None where nothing was predicted or true."""
    hits = predicted = relevant = 0
    for r, t, u in zip(ranked, true, unknown, strict=True):
        hits += len(set(r[:k]) & t)
        predicted += len(r[:k])
        relevant += len(t) + u
    p = hits / predicted if predicted else None
    r = hits / relevant if relevant else None
    both = _f1(p or 0.0, r or 0.0) if predicted + relevant else None
    return p, r, both


def macro(ranked, true, unknown, k):
    """Means over the labels that occur: (precision, recall, F1, coverage); None if none does."""
    rows = []
    for label in sorted(set().union(*true)):
        hits = sum(label in r[:k] and label in t for r, t in zip(ranked, true, strict=True))
        predicted = sum(label in r[:k] for r in ranked)
        relevant = sum(label in t for t in true)
        p = hits / predicted if predicted else 0.0
        rows.append((p, hits / relevant, _f1(p, hits / relevant), float(hits > 0)))
    return (
        tuple(sum(column) / len(rows) for column in zip(*rows, strict=True))
        if rows
        else (None,) * 4
    )


def inverse_propensity(frequency, n_train, a, b):
    c = (math.log(n_train) - 1) * (b + 1) ** a
    p = 1 / (1 + c * math.exp(-a * math.log(frequency + b)))
    return 1 / p


def propensity_costs(labels, a, b):
    """Cost of a positive of each label column: 1 / p, over the mean of it over all positives.

    ``labels`` is a dense documents x labels matrix, not 0 where a document has a label.
    """
    documents, columns = len(labels), range(len(labels[0]))
    frequency = [sum(1 for row in labels if row[label]) for label in columns]
    inverse = [inverse_propensity(frequency[label], documents, a, b) for label in columns]
    positives = [inverse[label] for row in labels for label in columns if row[label]]
    return [weight * len(positives) / sum(positives) for weight in inverse]


def psp(ranked, true, unknown, k, frequency, n_train, a, b, discounted):
    """PSP@k, or PSnDCG@k when discounted; None when there was nothing to find."""
    numerator = denominator = 0.0
    for r, t, u in zip(ranked, true, unknown, strict=True):
        weights = [inverse_propensity(frequency[label], n_train, a, b) for label in t]
        weights += [inverse_propensity(0, n_train, a, b)] * u
        best = sorted(weights, reverse=True)[:k]
        for j, weight in enumerate(best, start=1):
            denominator += weight / math.log2(j + 1) if discounted else weight
        for j, label in enumerate(r[:k], start=1):
            if label in t:
                weight = inverse_propensity(frequency[label], n_train, a, b)
                numerator += weight / math.log2(j + 1) if discounted else weight
    return numerator / denominator if denominator else None


def bin_name(count):
    if count > 100:
        return "head"
    if count >= 11:
        return "torso"
    return "tail" if count >= 1 else "unseen"


def by_bin(ranked, true, unknown, k, frequency):
    """{bin: (share of P@k, recall or None)}"""
    result = {}
    for name in ("head", "torso", "tail", "unseen"):
        hits = relevant = 0
        for r, t, u in zip(ranked, true, unknown, strict=True):
            hits += sum(label in t and bin_name(frequency[label]) == name for label in r[:k])
            relevant += sum(bin_name(frequency[label]) == name for label in t)
            relevant += u if name == "unseen" else 0
        result[name] = (hits / (k * len(true)), hits / relevant if relevant else None)
    return result
