// openai-node as its users use it. Each turn asks for a model of its own name.
import OpenAI from 'openai';
import { ResponsesToolRunner } from 'openai/helpers/responses-tool-runner';
import { zodResponsesFunction, zodTextFormat } from 'openai/helpers/zod';
import { ResponsesWS } from 'openai/resources/responses/ws';
import { z } from 'zod';

import { all, baseURL, tell, turn } from './report.mjs';

const client = new OpenAI({ baseURL, apiKey: 'none', maxRetries: 0 });
const Person = z.object({ name: z.string(), age: z.number() });
const weather = {
  type: 'function',
  name: 'weather',
  description: 'The weather in a city.',
  parameters: {
    type: 'object',
    properties: { city: { type: 'string' } },
    required: ['city'],
    additionalProperties: false,
  },
  strict: true,
};

await turn('create', async (model) => {
  const response = await client.responses.create({
    model,
    instructions: 'Be short.',
    input: 'Say hello.',
    metadata: { topic: 'sea' },
  });
  const { id, status, output_text, usage, metadata } = response;
  return { id, status, output_text, usage, metadata, request_id: response._request_id };
});

await turn('create-stream', async (model) => {
  const events = await all(await client.responses.create({ model, input: 'Hello.', stream: true }));
  return { types: events.map((event) => event.type), last: events.at(-1) };
});

await turn('cut-off', async (model) => {
  const types = [];
  const error = { name: null };
  let id = null;
  try {
    for await (const event of await client.responses.create({ model, input: 'Hello.', stream: true })) {
      id ??= event.response?.id;
      types.push(event.type);
    }
  } catch (thrown) {
    Object.assign(error, { name: thrown.constructor.name, code: thrown.code, message: thrown.message });
  }
  return { types, error, kept: (await client.responses.retrieve(id)).output_text };
});

await turn('stream', async (model) => {
  const pieces = [];
  const stream = client.responses.stream({ model, input: 'Hello.' });
  stream.on('response.output_text.delta', (event) => pieces.push(event.delta));
  const final = await stream.finalResponse();
  return { pieces, text: final.output_text };
});

await turn('stream-again', async (model) => {
  const first = await client.responses.stream({ model, input: 'Hello.' }).finalResponse();
  const again = await client.responses.stream({ response_id: first.id }).finalResponse();
  const rest = await all(
    await client.responses.retrieve(first.id, { stream: true, starting_after: 2 }),
  );
  return { first, again, numbers: rest.map((event) => event.sequence_number) };
});

await turn('parse', async (model) => {
  const response = await client.responses.parse({
    model,
    input: 'Invent a person.',
    text: { format: zodTextFormat(Person, 'person') },
  });
  return response.output_parsed;
});

await turn('parse-call', async (model) => {
  const response = await client.responses.parse({
    model,
    input: 'Look Ada up.',
    tools: [zodResponsesFunction({ name: 'look_up', parameters: Person })],
  });
  return response.output[0].parsed_arguments;
});

await turn('tool-loop', async (model) => {
  const asked = await client.responses.create({
    model,
    input: 'The weather in Rome and in Oslo?',
    tools: [weather],
  });
  const outputs = asked.output.map((call) => ({
    type: 'function_call_output',
    call_id: call.call_id,
    output: `sun in ${JSON.parse(call.arguments).city}`,
  }));
  const told = await client.responses.create({
    model,
    previous_response_id: asked.id,
    input: outputs,
    tools: [weather],
  });
  return { calls: asked.output, text: told.output_text };
});

await turn('tool-runner', async (model) => {
  const runner = new ResponsesToolRunner({
    functions: [{ tool: weather, execute: async ({ city }) => `sun in ${city}` }],
  });
  const response = await runner.run(client, { model, input: 'The weather in Rome?' });
  return response.output_text;
});

await turn('namespace', async (model) => {
  const tools = [
    { type: 'namespace', name: 'almanac', description: 'What is known.', tools: [weather] },
  ];
  const asked = await client.responses.stream({ model, input: 'Rome?', tools }).finalResponse();
  const call = asked.output[0];
  const told = await client.responses.create({
    model,
    previous_response_id: asked.id,
    input: [{ type: 'function_call_output', call_id: call.call_id, output: 'sun' }],
    tools,
  });
  return { call, text: told.output_text };
});

await turn('shell', async (model) => {
  const tools = [{ type: 'shell', environment: { type: 'local' } }];
  const asked = await client.responses.stream({ model, input: 'Files?', tools }).finalResponse();
  const call = asked.output[0];
  const outcome = { type: 'exit', exit_code: 0 };
  const output = [{ stdout: 'notes.txt', stderr: '', outcome }];
  const told = await client.responses.create({
    model,
    previous_response_id: asked.id,
    input: [{ type: 'shell_call_output', call_id: call.call_id, output }],
    tools,
  });
  return { call, text: told.output_text };
});

await turn('replay', async (model) => {
  const input = [{ role: 'user', content: 'The weather in Rome?' }];
  const asked = await client.responses.create({
    model,
    input,
    tools: [weather],
    reasoning: { effort: 'low' },
    include: ['reasoning.encrypted_content'],
    store: false,
  });
  const call = asked.output.at(-1);
  input.push(...asked.output);
  input.push({ type: 'function_call_output', call_id: call.call_id, output: 'rain' });
  const told = await client.responses.create({ model, input, tools: [weather], store: false });
  return { types: asked.output.map((item) => item.type), text: told.output_text };
});

await turn('custom-tool', async (model) => {
  const tools = [
    {
      type: 'custom',
      name: 'sums',
      description: 'Works out a sum.',
      format: { type: 'grammar', syntax: 'regex', definition: '[0-9]+( [+*] [0-9]+)*' },
    },
  ];
  const pieces = [];
  const stream = client.responses.stream({ model, input: 'What is 2 + 3?', tools });
  stream.on('response.custom_tool_call_input.delta', (event) => pieces.push(event.delta));
  const asked = await stream.finalResponse();
  const call = asked.output[0];
  const told = await client.responses.create({
    model,
    previous_response_id: asked.id,
    input: [{ type: 'custom_tool_call_output', call_id: call.call_id, output: '5' }],
    tools,
  });
  return { call, pieces, text: told.output_text };
});

await turn('conversation', async (model) => {
  const made = await client.conversations.create({ metadata: { topic: 'sea' } });
  const changed = await client.conversations.update(made.id, { metadata: { topic: 'land' } });
  await client.responses.create({ model, input: 'My name is Ada.', conversation: made.id });
  const told = await client.responses.create({
    model,
    input: 'What is my name?',
    conversation: made.id,
  });
  const added = await client.conversations.items.create(made.id, {
    items: [{ type: 'message', role: 'user', content: 'Thanks.' }],
  });
  const items = await all(client.conversations.items.list(made.id, { limit: 2, order: 'asc' }));
  const one = await client.conversations.items.retrieve(items[0].id, { conversation_id: made.id });
  await client.conversations.items.delete(items[0].id, { conversation_id: made.id });
  const left = await all(client.conversations.items.list(made.id));
  const deleted = await client.conversations.delete(made.id);
  return {
    metadata: changed.metadata,
    text: told.output_text,
    added: added.data.length,
    items: items.map((item) => item.content[0].text),
    one: one.content[0].text,
    left: left.length,
    deleted: deleted.deleted,
  };
});

await turn('input-items', async (model) => {
  const made = await client.responses.create({
    model,
    input: ['0', '1', '2', '3', '4'].map((content) => ({ role: 'user', content })),
  });
  const items = await all(client.responses.inputItems.list(made.id, { limit: 2, order: 'asc' }));
  return items.map((item) => item.content[0].text);
});

await turn('background', async (model) => {
  const made = await client.responses.create({ model, input: 'Hello.', background: true });
  const events = await all(await client.responses.retrieve(made.id, { stream: true }));
  const final = await client.responses.retrieve(made.id);
  const cancelled = await client.responses.cancel(made.id);
  return {
    queued: made.status,
    last: events.at(-1).type,
    text: final.output_text,
    cancelled: cancelled.status,
  };
});

await turn('delete', async (model) => {
  const made = await client.responses.create({ model, input: 'Hello.' });
  await client.responses.delete(made.id);
  try {
    await client.responses.retrieve(made.id);
  } catch (error) {
    return { name: error.constructor.name, status: error.status, code: error.code };
  }
  return null;
});

await turn('compact', async (model) => {
  const first = await client.responses.create({ model, input: 'My name is Ada.' });
  const compacted = await client.responses.compact({ model, previous_response_id: first.id });
  const told = await client.responses.create({
    model,
    input: [...compacted.output, { role: 'user', content: 'What is my name?' }],
  });
  return { types: compacted.output.map((item) => item.type), text: told.output_text };
});

await turn('input-tokens', async (model) => {
  const counted = await client.responses.inputTokens.count({ model, input: 'Hello there.' });
  return counted.input_tokens;
});

await turn('models', async (model) => {
  const listed = await all(client.models.list());
  const one = await client.models.retrieve(model);
  return { listed: listed.map((found) => found.id), one: one.id };
});

await turn('bad-request', async (model) => {
  try {
    await client.responses.create({ model, input: 'x', previous_response_id: 'resp_nothing' });
  } catch (error) {
    const { status, code, param, type } = error;
    return { name: error.constructor.name, status, code, param, type };
  }
  return null;
});

/** Ask over a socket; return the terminal event. */
function ask(socket, request) {
  return new Promise((resolve, reject) => {
    const ends = ['response.completed', 'response.failed', 'response.incomplete'];
    const listen = (event) => {
      if (!ends.includes(event.type)) return;
      socket.off('event', listen);
      resolve(event);
    };
    socket.on('event', listen);
    socket.on('error', reject);
    socket.send({ type: 'response.create', ...request });
  });
}

await turn('websocket', async (model) => {
  const socket = new ResponsesWS(client);
  try {
    const first = await ask(socket, { model, input: 'My name is Ada.', store: false });
    const second = await ask(socket, {
      model,
      input: 'What is my name?',
      previous_response_id: first.response.id,
      store: false,
    });
    return { types: [first.type, second.type], output: second.response.output };
  } finally {
    socket.close();
  }
});

tell();
