#!/bin/bash
# A cluster-scoped init script: installs sbnotebook on the driver and on every worker, before Spark starts.
# Put it and the wheel into a Unity Catalog volume, and write the wheel's path here: on newer runtimes a script does not
# see what the cluster's settings say. The cluster does not start if this fails.
set -euo pipefail

wheel=/Volumes/CATALOG/SCHEMA/VOLUME/sbnotebook-0.1.0-py3-none-any.whl

# No [spark]: the runtime's own PySpark stays.
/databricks/python/bin/pip install --quiet "$wheel"
