"""Several methods whose lists of labels become one."""

from labelgrove.methods.ensemble.method import Ensemble as Ensemble
