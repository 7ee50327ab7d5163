"""A study in Optuna's storage: how it is opened, written, waited for and read back."""
