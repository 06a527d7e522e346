// @langchain/openai as its users use it. Each turn asks for a model of its own name.
import { HumanMessage, SystemMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { ChatOpenAI } from '@langchain/openai';
import { z } from 'zod';

import { baseURL, tell, turn } from './report.mjs';

const weather = tool(async ({ city }) => `sun in ${city}`, {
  name: 'weather',
  description: 'The weather in a city.',
  schema: z.object({ city: z.string() }),
});

/** Return a chat model that speaks Responses. */
function make(model) {
  return new ChatOpenAI({
    model,
    apiKey: 'none',
    maxRetries: 0,
    useResponsesApi: true,
    configuration: { baseURL },
  });
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

await turn('tool-loop', async (model) => {
  const chat = make(model).bindTools([weather]);
  const messages = [new HumanMessage('The weather in Rome and in Oslo?')];
  const first = await chat.invoke(messages);
  messages.push(first);
  for (const call of first.tool_calls) messages.push(await weather.invoke(call));
  return (await chat.invoke(messages)).text;
});

await turn('cut-off', streaming);

tell();
