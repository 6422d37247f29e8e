"""One label's column, literally: the documents that its cluster sees, and a general optimiser."""

from __future__ import annotations

import numpy as np

from reference.solver import solve


def column(x, y, tree, label, *, seen, C=1.0, mined_weight=0.5, centre=0.0, factors=None):
    """Weights of one label, bias last, trained from scratch (or drawn towards ``centre``).

    ``x`` are dense features, ``y`` documents x labels; ``seen`` says of each document whether it is
    sent to the label's cluster. Documents that bear a label of the cluster learn as well, and the
    others count by ``mined_weight``.
    """
    position = list(tree.leaf_labels).index(label)
    cluster = tree.parents[-1][position]
    family = [
        tree.leaf_labels[leaf] for leaf in range(tree.labels) if tree.parents[-1][leaf] == cluster
    ]
    rows, signs, costs = [], [], []
    for document in range(len(x)):
        bears = any(y[document, other] > 0 for other in family)
        if seen[document] or bears:
            rows.append([*x[document], 1.0])
            signs.append(1.0 if y[document, label] > 0 else -1.0)
            cost = C if bears else C * mined_weight
            costs.append(cost * (1.0 if factors is None else factors[document]))
    return solve(np.array(rows, float), np.array(signs), np.array(costs), "squared_hinge", centre)
