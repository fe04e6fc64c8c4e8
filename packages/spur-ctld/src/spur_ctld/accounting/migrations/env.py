"""Alembic's entry: runs the steps on the connection that `spur_ctld.accounting.engine` hands over."""

from alembic import context

from spur_ctld.accounting.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
