"""The former place of the action panel: import it from :mod:`sbnotebook.widgets.action_panel`."""

import sys
import warnings

from sbnotebook.widgets import action_panel

warnings.warn(
    "sbnotebook.widgets.acting.action_panel is now sbnotebook.widgets.action_panel.", DeprecationWarning, stacklevel=2
)
sys.modules[f"{__name__}.action_panel"] = action_panel
