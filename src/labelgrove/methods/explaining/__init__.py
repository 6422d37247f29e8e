"""Why a label was predicted."""
