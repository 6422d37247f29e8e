"""Trees of linear classifiers on tf-idf (XR-Linear, Parabel, Bonsai) and on text vectors."""

from labelgrove.methods.linear.method import Linear as Linear
