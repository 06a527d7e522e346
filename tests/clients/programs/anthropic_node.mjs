// @anthropic-ai/sdk as its users use it. Each turn asks for a model of its own name.
import Anthropic from '@anthropic-ai/sdk';

import { all, baseURL, tell, turn } from './report.mjs';

const client = new Anthropic({
  baseURL: baseURL.replace(/\/v1$/, ''),
  apiKey: 'none',
  maxRetries: 0,
});
const hello = [{ role: 'user', content: 'Hello.' }];
const weather = {
  name: 'weather',
  description: 'The weather in a city.',
  input_schema: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
};

await turn('create', async (model) =>
  client.messages.create({ model, max_tokens: 99, system: 'Be short.', messages: hello }),
);

await turn('stream', async (model) => {
  const stream = client.messages.stream({ model, max_tokens: 99, messages: hello });
  const texts = [];
  stream.on('text', (text) => texts.push(text));
  return { message: await stream.finalMessage(), texts };
});

await turn('tool-loop', async (model) => {
  const asked = { model, max_tokens: 99, tools: [weather], thinking: { type: 'adaptive' } };
  const called = await client.messages.stream({ ...asked, messages: hello }).finalMessage();
  const calls = called.content.filter((block) => block.type === 'tool_use');
  const results = calls.map(({ id, input }) => ({
    type: 'tool_result',
    tool_use_id: id,
    content: `Sun in ${input.city}.`,
  }));
  const messages = [
    ...hello,
    { role: 'assistant', content: called.content },
    { role: 'user', content: results },
  ];
  return client.messages.create({ ...asked, messages });
});

await turn('cut-off', async (model) => {
  const stream = client.messages.stream({ model, max_tokens: 99, messages: hello });
  return stream.finalMessage();
});

await turn('count', async (model) => client.messages.countTokens({ model, messages: hello }));

await turn('models', async () => {
  const models = await all(client.models.list());
  return models.map(({ id, type }) => ({ id, type }));
});

tell();
