// openai-agents for JavaScript as its users use it. Each turn asks for a model of its own name.
import {
  Agent,
  applyPatchTool,
  MemorySession,
  OpenAIConversationsSession,
  OpenAIResponsesCompactionSession,
  run,
  setDefaultOpenAIClient,
  setTracingDisabled,
  shellTool,
  tool,
  toolNamespace,
  toolSearchTool,
  withResponsesWebSocketSession,
} from '@openai/agents';
import OpenAI from 'openai';
import { z } from 'zod';

import { all, baseURL, tell, turn } from './report.mjs';

setTracingDisabled(true);
const client = new OpenAI({ baseURL, apiKey: 'none', maxRetries: 0 });
setDefaultOpenAIClient(client);

const Person = z.object({ name: z.string(), age: z.number() });
const makeWeather = (more = {}) =>
  tool({
    name: 'weather',
    description: 'The weather in a city.',
    parameters: z.object({ city: z.string() }),
    execute: async ({ city }) => `sun in ${city}`,
    ...more,
  });
const weather = makeWeather();
const clerk = (model, more = {}) => new Agent({ name: 'Clerk', model, ...more });
const kinds = (result) => result.newItems.map((item) => item.type);

await turn('tool-loop', async (model) => {
  const agent = clerk(model, { instructions: 'Use the tool.', tools: [weather] });
  const result = await run(agent, 'The weather in Rome and in Oslo?');
  return { text: result.finalOutput, items: kinds(result) };
});

await turn('streaming', async (model) => {
  const result = await run(clerk(model, { tools: [weather] }), 'The weather in Rome?', {
    stream: true,
  });
  const pieces = [];
  const items = [];
  for await (const event of result) {
    if (event.type === 'raw_model_stream_event' && event.data.type === 'output_text_delta') {
      pieces.push(event.data.delta);
    }
    if (event.type === 'run_item_stream_event') items.push(event.name);
  }
  await result.completed;
  return { text: result.finalOutput, pieces, items };
});

await turn('handoff', async (model) => {
  const poet = new Agent({ name: 'Poet', instructions: 'Answer in verse.', model });
  const agent = clerk(model, { instructions: 'Hand poems over.', handoffs: [poet] });
  const result = await run(agent, 'A poem, please.');
  return { text: result.finalOutput, agent: result.lastAgent.name, items: kinds(result) };
});

await turn('output-type', async (model) => {
  const result = await run(clerk(model, { outputType: Person }), 'Invent a person.');
  return result.finalOutput;
});

await turn('previous-response', async (model) => {
  const first = await run(clerk(model), 'My name is Ada.');
  const second = await run(clerk(model), 'What is my name?', {
    previousResponseId: first.lastResponseId,
  });
  return second.finalOutput;
});

await turn('conversation-id', async (model) => {
  const { id: conversationId } = await client.conversations.create({});
  const agent = clerk(model, { tools: [weather] });
  const first = await run(agent, 'The weather in Rome?', { conversationId });
  const second = await run(agent, 'And again?', { conversationId });
  return [first.finalOutput, second.finalOutput];
});

await turn('conversation-session', async (model) => {
  const session = new OpenAIConversationsSession({ client });
  const agent = clerk(model, { tools: [weather] });
  const first = await run(agent, 'The weather in Rome?', { session });
  const second = await run(agent, 'And again?', { session });
  const items = await session.getItems();
  const popped = await session.popItem();
  const left = (await session.getItems()).length;
  await session.clearSession();
  return {
    texts: [first.finalOutput, second.finalOutput],
    items: items.map((item) => item.type ?? 'message'),
    popped: popped.type ?? 'message',
    left,
  };
});

async function compacted(model, modelSettings) {
  const session = new OpenAIResponsesCompactionSession({
    client,
    model,
    underlyingSession: new MemorySession(),
    shouldTriggerCompaction: ({ compactionCandidateItems: items }) => items.length >= 2,
  });
  const texts = [];
  for (const question of ['My name is Ada.', 'I live in Rome.', 'Who am I?']) {
    const result = await run(clerk(model, { modelSettings }), question, { session });
    texts.push(result.finalOutput);
  }
  const items = await session.getItems();
  return { texts, items: items.map((item) => item.type ?? item.role) };
}

await turn('gpt-compaction', (model) => compacted(model, {}));
await turn('gpt-compaction-of-input', (model) => compacted(model, { store: false }));

await turn('shell', async (model) => {
  const heard = [];
  const shell = {
    async run(action) {
      heard.push(action.commands);
      const outcome = { type: 'exit', exitCode: 0 };
      return { output: [{ stdout: 'notes.txt', stderr: '', outcome }] };
    },
  };
  const result = await run(clerk(model, { tools: [shellTool({ shell })] }), 'Which files?');
  return { text: result.finalOutput, heard };
});

await turn('apply-patch', async (model) => {
  const done = [];
  const note = async ({ type, path, diff }) => {
    done.push({ type, path, diff });
    return { status: 'completed', output: `did ${path}` };
  };
  const editor = { createFile: note, updateFile: note, deleteFile: note };
  const result = await run(clerk(model, { tools: [applyPatchTool({ editor })] }), 'Write it.');
  return { text: result.finalOutput, done };
});

await turn('namespace', async (model) => {
  const tools = toolNamespace({
    name: 'almanac',
    description: 'What is known.',
    tools: [makeWeather()],
  });
  const result = await run(clerk(model, { tools }), 'The weather in Rome?');
  return { text: result.finalOutput, items: kinds(result) };
});

await turn('tool-search', async (model) => {
  const tools = [toolSearchTool({ execution: 'client' }), makeWeather({ deferLoading: true })];
  const result = await run(clerk(model, { tools }), 'The weather in Rome?');
  return { text: result.finalOutput, items: kinds(result) };
});

await turn('websocket', (model) =>
  withResponsesWebSocketSession(
    async ({ run: runOver }) => {
      const agent = clerk(model, { tools: [weather] });
      const first = await runOver(agent, 'The weather in Rome?');
      const second = await runOver(agent, 'And again?', {
        stream: true,
        previousResponseId: first.lastResponseId,
      });
      const events = await all(second);
      await second.completed;
      return { texts: [first.finalOutput, second.finalOutput], events: events.length };
    },
    { providerOptions: { baseURL, apiKey: 'none' } },
  ),
);

tell();
