"""Training: a model of one's own data, on gradients that clients randomize before they leave them.

    from croupier import training

    outcome = training.train(module, examples, held_out, training.TrainingSettings(simulate=True))

The names below are public; everything else is private to the deployment. They are loaded, and torch with them, when
they are first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
