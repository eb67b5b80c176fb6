"""What tests of programs that use Service Bus need: strategies, clocks, an emulator."""
