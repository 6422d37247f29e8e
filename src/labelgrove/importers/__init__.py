"""What other software has: models of PECOS; projects, corpora and vocabularies of Annif."""
