// @llamaindex/openai as its users use it. Each turn asks for a model of its own name.
import { tool } from '@llamaindex/core/tools';
import { OpenAIResponses } from '@llamaindex/openai';
import { z } from 'zod';

import { baseURL, tell, turn } from './report.mjs';

const weather = tool({
  name: 'weather',
  description: 'The weather in a city.',
  parameters: z.object({ city: z.string() }),
  execute: ({ city }) => `sun in ${city}`,
});

/** Return a model that speaks Responses. */
function make(model) {
  return new OpenAIResponses({ model, baseURL, apiKey: 'none', maxRetries: 0 });
}

/**
 * Return the pieces of text that a model streams. The client repeats the last piece with every
 * event that follows it, so only those that come with a text event count.
 */
async function streaming(model) {
  const messages = [{ role: 'user', content: 'Say hello.' }];
  const pieces = [];
  for await (const chunk of await make(model).chat({ messages, stream: true })) {
    if (chunk.raw.type === 'response.output_text.delta') pieces.push(chunk.delta);
  }
  return pieces;
}

await turn('text', async (model) => {
  const messages = [
    { role: 'system', content: 'Be short.' },
    { role: 'user', content: 'Say hello.' },
  ];
  return (await make(model).chat({ messages })).message.content;
});

await turn('streaming', streaming);

await turn('tool-loop', async (model) => {
  const llm = make(model);
  const messages = [{ role: 'user', content: 'The weather in Rome and in Oslo?' }];
  const first = await llm.exec({ messages, tools: [weather] });
  messages.push(...first.newMessages);
  const second = await llm.exec({ messages, tools: [weather] });
  return second.newMessages.at(-1).content;
});

await turn('cut-off', streaming);

tell();
