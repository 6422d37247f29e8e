"""Choose a parameter with scikit-learn's grid search."""

from sklearn.model_selection import GridSearchCV

import labelgrove
from labelgrove.data.shop import shop_corpus

corpus = shop_corpus(400, labels=40, seed=0)
search = GridSearchCV(
    labelgrove.Linear(n_jobs=1),
    {"ranker__C": [0.5, 1.0, 2.0]},
    scoring=labelgrove.scorer("nDCG@5"),
    cv=3,
)
search.fit(list(corpus.texts), corpus.label_lists())
print(f"best: {search.best_params_}, nDCG@5 {search.best_score_:.3f}")
