"""One translation for each kind of model server, all behind `base.Backend`. Heavy imports belong here and nowhere else."""
