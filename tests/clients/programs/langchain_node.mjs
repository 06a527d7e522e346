// @langchain/openai as its users use it. Each turn asks for a model of its own name.
import { HumanMessage, SystemMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { ChatOpenAI } from '@langchain/openai';
import { z } from 'zod';

import { all, baseURL, tell, turn } from './report.mjs';

const weather = tool(async ({ city }) => `sun in ${city}`, {
  name: 'weather',
  description: 'The weather in a city.',
  schema: z.object({ city: z.string() }),
});

/** Return a chat model that speaks Responses. */
function make(model) {
  return makeDefault(model, { useResponsesApi: true });
}

/** Return a chat model that speaks what the library chooses: chat completions. */
function makeDefault(model, more = {}) {
  const configuration = { baseURL };
  return new ChatOpenAI({ model, apiKey: 'none', maxRetries: 0, configuration, ...more });
}

/** Ask a model, call the tool as often as it says, and return its answer to the results. */
async function toolLoop(chat, ask) {
  const messages = [new HumanMessage('The weather in Rome and in Oslo?')];
  const first = await ask(chat.bindTools([weather]), messages);
  messages.push(first);
  for (const call of first.tool_calls) messages.push(await weather.invoke(call));
  return ask(chat.bindTools([weather]), messages);
}

/** Return the answer of a model as a whole. */
const whole = (chat, messages) => chat.invoke(messages);

/** Return the sum of the chunks that a model streams. */
async function streamed(chat, messages) {
  const chunks = await all(await chat.stream(messages));
  return chunks.reduce((sum, chunk) => sum.concat(chunk));
}

/** Return the pieces of text that a model streams. */
async function streaming(model) {
  const pieces = [];
  for await (const chunk of await make(model).stream('Say hello.')) {
    if (chunk.text) pieces.push(chunk.text);
  }
  return pieces;
}

await turn('text', async (model) => {
  const messages = [new SystemMessage('Be short.'), new HumanMessage('Say hello.')];
  const answer = await make(model).invoke(messages);
  return { text: answer.text, usage: answer.usage_metadata };
});

await turn('streaming', streaming);

await turn('tool-loop', async (model) => (await toolLoop(make(model), whole)).text);

await turn('chat-tool-loop', async (model) => {
  const answer = await toolLoop(makeDefault(model), whole);
  return { text: answer.text, id: answer.id };
});

await turn('chat-streamed', async (model) => {
  const answer = await toolLoop(makeDefault(model), streamed);
  return { text: answer.text, id: answer.id };
});

await turn('cut-off', streaming);

tell();
