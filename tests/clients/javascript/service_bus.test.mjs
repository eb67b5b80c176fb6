// The SDK for JavaScript against the emulator that SERVICE_BUS names, with Node's own test runner.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, test } from "node:test";

import { ServiceBusAdministrationClient, ServiceBusClient } from "@azure/service-bus";

const connectionString = process.env.SERVICE_BUS;
const wait = { maxWaitTimeInMs: 5000 };
const limits = { timeout: 30_000 };
const client = new ServiceBusClient(connectionString);
// The administration client speaks HTTPS only.
const administration = new ServiceBusAdministrationClient(process.env.SERVICE_BUS_TLS);

before(() => assert.match(connectionString, /UseDevelopmentEmulator=true/));
after(() => client.close());

async function createQueue(options) {
  const name = `queue-${randomUUID()}`;
  await administration.createQueue(name, options);
  return name;
}

const bodies = (messages) => messages.map((message) => message.body);

async function send(queue, ...messages) {
  const sender = client.createSender(queue);
  await sender.sendMessages(messages);
  await sender.close();
}

async function receive(receiver, count) {
  const messages = [];
  while (messages.length < count) {
    const more = await receiver.receiveMessages(count - messages.length, wait);
    assert.ok(more.length, `${messages.length} of ${count} messages came`);
    messages.push(...more);
  }
  return messages;
}

test("a message arrives as it was sent, and is gone once it is complete", limits, async () => {
  const queue = await createQueue();
  const sent = {
    body: { carrier: "UA", flight: 1545 },
    messageId: "flight-1545",
    subject: "departed",
    correlationId: "EWR",
    applicationProperties: { delay: 2, late: true, tail: "N14228" },
  };
  await send(queue, sent);
  const receiver = client.createReceiver(queue);
  const [message] = await receive(receiver, 1);
  for (const [name, value] of Object.entries(sent)) assert.deepEqual(message[name], value);
  assert.equal(message.deliveryCount, 0);
  await receiver.completeMessage(message);
  assert.deepEqual(await receiver.receiveMessages(1, { maxWaitTimeInMs: 300 }), []);
  assert.equal((await administration.getQueueRuntimeProperties(queue)).totalMessageCount, 0);
});

test("an abandoned message comes again and counts, with the properties that were changed", limits, async () => {
  const queue = await createQueue();
  await send(queue, { body: "again" });
  const receiver = client.createReceiver(queue);
  const [first] = await receive(receiver, 1);
  await receiver.abandonMessage(first, { why: "busy" });
  const [second] = await receive(receiver, 1);
  assert.equal(second.deliveryCount, 1);
  assert.deepEqual(second.applicationProperties, { why: "busy" });
  await receiver.completeMessage(second);
});

test("a dead-lettered message stands in the dead-letter queue with its reason", limits, async () => {
  const queue = await createQueue();
  await send(queue, { body: "bad" });
  const receiver = client.createReceiver(queue);
  const [message] = await receive(receiver, 1);
  await receiver.deadLetterMessage(message, { deadLetterReason: "Invalid", deadLetterErrorDescription: "No carrier." });
  const dead = client.createReceiver(queue, { subQueueType: "deadLetter" });
  const [found] = await receive(dead, 1);
  assert.equal(found.body, "bad");
  assert.equal(found.deadLetterReason, "Invalid");
  assert.equal(found.deadLetterErrorDescription, "No carrier.");
  await dead.completeMessage(found);
});

test("a deferred message is received by its sequence number only", limits, async () => {
  const queue = await createQueue();
  await send(queue, { body: "later" });
  const receiver = client.createReceiver(queue);
  const [message] = await receive(receiver, 1);
  await receiver.deferMessage(message);
  assert.deepEqual(await receiver.receiveMessages(1, { maxWaitTimeInMs: 300 }), []);
  const [deferred] = await receiver.receiveDeferredMessages(message.sequenceNumber);
  assert.equal(deferred.body, "later");
  await receiver.completeMessage(deferred);
});

test("a renewed lock lasts longer", limits, async () => {
  const queue = await createQueue({ lockDuration: "PT5S" });
  await send(queue, { body: "slow" });
  const receiver = client.createReceiver(queue);
  const [message] = await receive(receiver, 1);
  const until = message.lockedUntilUtc.getTime();
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.ok((await receiver.renewMessageLock(message)).getTime() > until);
  await receiver.completeMessage(message);
});

test("peeking shows messages in order and takes none", limits, async () => {
  const queue = await createQueue();
  await send(queue, { body: 0 }, { body: 1 }, { body: 2 });
  const receiver = client.createReceiver(queue);
  const first = await receiver.peekMessages(2);
  assert.deepEqual(bodies(first), [0, 1]);
  assert.deepEqual(bodies(await receiver.peekMessages(2)), [2]);
  const again = await receiver.peekMessages(5, { fromSequenceNumber: first[1].sequenceNumber });
  assert.deepEqual(bodies(again), [1, 2]);
  assert.equal((await receive(receiver, 3)).length, 3);
});

test("scheduled messages wait, and can be cancelled", limits, async () => {
  const queue = await createQueue();
  const sender = client.createSender(queue);
  const tomorrow = new Date(Date.now() + 86_400_000);
  const [kept, cancelled] = await sender.scheduleMessages([{ body: "kept" }, { body: "cancelled" }], tomorrow);
  await sender.cancelScheduledMessages(cancelled);
  const receiver = client.createReceiver(queue);
  const [message, ...others] = await receiver.peekMessages(5);
  assert.deepEqual(others, []);
  assert.equal(message.body, "kept");
  assert.equal(message.state, "scheduled");
  assert.ok(message.sequenceNumber.equals(kept));
  assert.equal((await administration.getQueueRuntimeProperties(queue)).scheduledMessageCount, 1);
  await sender.scheduleMessages({ body: "now" }, new Date(Date.now() - 1000));
  assert.deepEqual(bodies(await receive(receiver, 1)), ["now"]);
});

test("a session keeps its order, its state and its lock", limits, async () => {
  const queue = await createQueue({ requiresSession: true });
  await send(queue, ...["a", "b", "a", "b"].map((sessionId, body) => ({ body, sessionId })));
  const session = await client.acceptSession(queue, "a");
  assert.deepEqual(bodies(await receive(session, 2)), [0, 2]);
  await session.setSessionState({ last: 2 });
  await session.renewSessionLock();
  await assert.rejects(client.acceptSession(queue, "a", { maxAutoLockRenewalDurationInMs: 0 }), {
    code: "SessionCannotBeLocked",
  });
  await session.close();
  const next = await client.acceptNextSession(queue);
  assert.ok(["a", "b"].includes(next.sessionId));
  await next.close();
  const again = await client.acceptSession(queue, "a");
  assert.deepEqual(await again.getSessionState(), { last: 2 });
  for (const message of await receive(again, 2)) await again.completeMessage(message);
  await again.close();
});

test("subscribe hands over each message once, and a failing handler leads to the dead-letter queue", limits, async () => {
  const queue = await createQueue({ maxDeliveryCount: 2 });
  await send(queue, ...[0, 1, 2, 3, 4].map((body) => ({ body })));
  const seen = [];
  const receiver = client.createReceiver(queue);
  await new Promise((resolve) => {
    receiver.subscribe(
      {
        async processMessage({ body }) {
          seen.push(body);
          if (seen.length === 6) resolve();
          if (body === 3) throw new Error("three is bad");
        },
        async processError() {},
      },
      // One at a time: rhea 3.0.5 merges the outcomes of two messages that are settled in one tick of Node's loop, also
      // when one is completed and the other abandoned, and completes both.
      { maxConcurrentCalls: 1 },
    );
  });
  const dead = client.createReceiver(queue, { subQueueType: "deadLetter" });
  assert.deepEqual(bodies(await receive(dead, 1)), [3]);
  await receiver.close();
  assert.deepEqual(seen.sort(), [0, 1, 2, 3, 3, 4]);
});

test("a rule decides which messages of a topic a subscription gets", limits, async () => {
  const topic = `topic-${randomUUID()}`;
  await administration.createTopic(topic);
  await administration.createSubscription(topic, "late");
  const rules = client.createRuleManager(topic, "late");
  await rules.deleteRule("$Default");
  await rules.createRule("late", { sqlExpression: "delay > 15" });
  await send(topic, ...[5, 20, 60].map((delay) => ({ body: delay, applicationProperties: { delay } })));
  const receiver = client.createReceiver(topic, "late");
  const messages = await receive(receiver, 2);
  assert.deepEqual(bodies(messages), [20, 60]);
  for (const message of messages) await receiver.completeMessage(message);
});

test("the administration client creates, changes, lists and deletes a queue", limits, async () => {
  const queue = await createQueue({ lockDuration: "PT30S" });
  const properties = await administration.getQueue(queue);
  assert.equal(properties.lockDuration, "PT30S");
  await administration.updateQueue({ ...properties, maxDeliveryCount: 7 });
  assert.equal((await administration.getQueue(queue)).maxDeliveryCount, 7);
  const names = [];
  for await (const { name } of administration.listQueues()) names.push(name);
  assert.ok(names.includes(queue));
  await administration.deleteQueue(queue);
  assert.equal(await administration.queueExists(queue), false);
});

test("an entity that is not there is an error that says so", limits, async () => {
  await assert.rejects(send("nowhere", { body: 1 }), { code: "MessagingEntityNotFound" });
});
