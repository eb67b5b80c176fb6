# Databricks notebook source
# MAGIC %md
# MAGIC # Why are messages dead letters?
# MAGIC
# MAGIC Looks into the dead-letter queue of one queue, counts its messages by cause and with Spark, and sends them back.
# MAGIC As it stands it runs on the emulator, on the driver, with three messages of its own. For a namespace in Azure,
# MAGIC put its connection string into a secret, and `secret:SCOPE/KEY` into the first of the fields that a cell below
# MAGIC makes.
# MAGIC
# MAGIC Nothing is sent or removed before the third field says *yes*.

# COMMAND ----------

# MAGIC %pip install /Volumes/CATALOG/SCHEMA/VOLUME/sbnotebook-0.1.0-py3-none-any.whl

# COMMAND ----------

# Now what is installed is used; variables are gone.
dbutils.library.restartPython()

# COMMAND ----------

dbutils.widgets.text("target", "emulator", "1 namespace")
dbutils.widgets.text("queue", "orders", "2 queue")
dbutils.widgets.dropdown("send_back", "no", ["no", "yes"], "3 send back")
dbutils.widgets.text("keep", "", "4 folder of a volume")

target = dbutils.widgets.get("target")
queue = dbutils.widgets.get("queue")

# COMMAND ----------

# MAGIC %md
# MAGIC What is resubmitted is written down and archived, so that it can be resumed and undone: on the driver's disk,
# MAGIC which ends with the cluster. The fourth field is a folder that stays, `/Volumes/CATALOG/SCHEMA/VOLUME`: the
# MAGIC files are fetched from there now, and put there at the end. They cannot be used there: a volume takes no writes
# MAGIC into the middle of a file.

# COMMAND ----------

import shutil
from pathlib import Path

import platformdirs

here = platformdirs.user_data_path("sbnotebook", ensure_exists=True)
keep = dbutils.widgets.get("keep")
if keep:
    for file in Path(keep).glob("*.sqlite"):
        shutil.copyfile(file, here / file.name)
        here.joinpath(file.name).chmod(0o600)

# COMMAND ----------

# MAGIC %load_ext sbnotebook
# MAGIC %sb_connect {target} --into namespace

# COMMAND ----------

if target == "emulator" and queue not in [entity.path for entity in namespace.entities()]:
    namespace.create_queue(queue)
    namespace.entity(queue).send(['{"total": 12}', '{"total": -1}', '{"total": -7}'])
    with namespace.entity(queue).lock(3) as batch:
        batch.dead_letter(where="(body_json->>'$.total')::int < 0", reason="Negative")

# COMMAND ----------

# MAGIC %sb_peek {queue}/$dlq -n 20

# COMMAND ----------

# MAGIC %sb_groups {queue}/$dlq

# COMMAND ----------

from sbnotebook.spark import load

letters = load(namespace, f"{queue}/$dlq", partitions=2)
letters.groupBy("dead_letter_reason").count().show()

# COMMAND ----------


def plan_with(connected):
    dead = connected.entity(f"{queue}/$dlq")
    return dead.resubmit(dead.peek(1000), to=queue, max_resubmits=3)


print(plan_with(namespace).preview())

# COMMAND ----------

import sbnotebook

if dbutils.widgets.get("send_back") == "yes":
    # %sb_connect only looks, outside of the emulator.
    with sbnotebook.connect(target) as writing:
        report = plan_with(writing).apply(max_in_flight=10, rate=50)
    print(report)
    report.raise_for_failures()

# COMMAND ----------

# MAGIC %sb_journal

# COMMAND ----------

namespace.close()
if keep:
    for file in here.glob("*.sqlite"):
        shutil.copyfile(file, Path(keep, file.name))
