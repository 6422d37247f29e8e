"""Trees of linear classifiers on tf-idf (XR-Linear, Parabel, Bonsai) and on text vectors."""
