"""Everything that touches the private side of azure-servicebus, written for version 7.15.

:mod:`~sbnotebook.settlement.sdk.protocol` names each private part once, and says where in the SDK it is from.
"""
