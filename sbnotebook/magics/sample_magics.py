"""``%sb_sample``: copy messages into an emulator or a file, and read such a file."""

from __future__ import annotations

from IPython.core.magic_arguments import argument

from sbnotebook.client import NamespaceCopy, read_copy
from sbnotebook.errors import ConfigurationError
from sbnotebook.magics.arguments import COUNT, INTO, STATE, WHERE, MagicArguments
from sbnotebook.magics.choosing import CAUSE_OPTION, MESSAGES, selected
from sbnotebook.magics.display import say
from sbnotebook.magics.plan_magics import PlanMagics, command


class SampleMagics(PlanMagics):
    """A magic that copies messages for others to look at and to try things on."""

    @command(
        argument("entity", nargs="?", metavar="ENTITY", help="entity of the messages, such as orders/$dlq"),
        WHERE,
        COUNT,
        STATE,
        MESSAGES,
        CAUSE_OPTION,
        argument(
            "--mask",
            metavar="PATH",
            action="append",
            help="value to replace: $.email, application_properties.NAME or a column. Repeatable",
        ),
        argument("--to", dest="to_file", metavar="FILE", help="write the copy to a new file, such as orders.sbcopy"),
        argument("--overwrite", action="store_true", help="with --to: replace an existing file"),
        argument("--from", dest="from_file", metavar="FILE", help="read the copy in a file, in place of an entity"),
        INTO,
    )
    def sb_sample(self, args: MagicArguments) -> NamespaceCopy | None:
        """Copy messages by peeking, into an emulator of this process or into a file.

        The value is a namespace with the entity, its options, rules and sessions, and the messages. It holds 10,000
        messages at most. The namespace of the connection stays as it is.

        Example::

            %sb_sample orders/$dlq -n 100 --mask $.carrier --mask message_id --into copy
            %sb_sample orders/$dlq --where "dead_letter_reason = 'Invalid'" --to orders.sbcopy
            %sb_sample --from orders.sbcopy --into copy
        """
        copy = self._copy(args)
        if args.to_file is None:
            name = args.into or "_"
            connect = f"%sb_connect {{{name}.connection_string}}"
            say(f"Work in it with {name}.entity(…), or {connect}; {name}.close() ends it.")
            return copy
        try:
            path = copy.save(args.to_file, overwrite=args.overwrite)
        except BaseException:
            copy.close()
            raise
        say(f"Wrote {path}: {copy.summary}")
        if args.into:
            return copy
        copy.close()
        return None

    def _copy(self, args: MagicArguments) -> NamespaceCopy:
        if args.overwrite and args.to_file is None:
            raise ConfigurationError("--overwrite goes with --to.")
        choosing = (args.where, args.count, args.state, args.messages, args.cause, args.mask)
        if args.from_file is not None:
            if args.entity or args.to_file or any(choosing):
                raise ConfigurationError("--from reads the copy in a file: leave the entity and the other options out.")
            return read_copy(args.from_file)
        if args.entity is None:
            raise ConfigurationError("Name the entity to copy from, such as orders/$dlq, or read a copy: --from FILE.")
        from sbnotebook.client.copying import MOST  # it loads the emulator

        args.from_sequence_number, args.to_sequence_number = 1, None
        if args.count is None and args.messages is None and args.cause is None:
            args.count = MOST + 1  # one too many is enough to refuse
        entity = self.current.namespace.entity(args.entity)
        return self.current.namespace.copy_to("emulator", entity.address, selected(entity, args), mask=args.mask or ())
