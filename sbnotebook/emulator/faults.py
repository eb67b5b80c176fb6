"""Faults on demand: how a test or a benchmark makes the emulator behave badly.

Standing faults are fields, in force until they are changed or ``RunningEmulator.reset`` clears them:

=====================  ==========================================================================
``accept_delay_ms``    each sent message is confirmed so much later; delays run at the same time
``settle_delay_ms``    each settlement over its link is confirmed so much later
``delivery_delay_ms``  each message arrives so much later, its lock runs already
``server_busy``        so many of the next sends and requests are refused with ``com.microsoft:server-busy``
``reject_nth``         the nth message sent over a link from now on is rejected with ``reject_condition``
``drop_before_nth``    the nth send, settlement or request from now on is not carried out and ends its connection
``drop_after_nth``     the nth send, settlement or request from now on is carried out, and ends its connection
                       before it is confirmed
``slow_disk_ms``       each commit takes so much longer, and nothing else happens meanwhile; for all entities alone
=====================  ==========================================================================

The faults count for all entities, except for those that have some of their own::

    emulator.faults.entity("orders").server_busy = 2

What happens once and at once is a method of ``RunningEmulator``: ``lose_locks``, ``close_links``,
``drop_connections``, ``freeze`` and ``thaw``. Over HTTP ``POST /faults`` does all of this with a
JSON object; see ``change_faults`` in ``service.breaking``.
"""
