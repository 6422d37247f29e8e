"""Several methods whose lists of labels become one."""
