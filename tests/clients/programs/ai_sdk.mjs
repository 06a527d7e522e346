// The AI SDK with both of its providers. Each turn asks for a model of its own name: what the
// two providers have in common is played twice, as `openai-…` and as `open-…`.
import { createOpenResponses } from '@ai-sdk/open-responses';
import { createOpenAI } from '@ai-sdk/openai';
import { generateObject, generateText, isStepCount, Output, streamText, tool } from 'ai';
import { z } from 'zod';

import { all, baseURL, tell, turn } from './report.mjs';

// The warnings of the SDK are part of the report, not of the output.
globalThis.AI_SDK_LOG_WARNINGS = false;

const openai = createOpenAI({ baseURL, apiKey: 'none' });
const openResponses = createOpenResponses({ name: 'antiphon', url: `${baseURL}/responses` });
const Person = z.object({ name: z.string(), age: z.number() });
const weather = tool({
  description: 'The weather in a city.',
  inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => `sun in ${city}`,
});
// One pixel.
const image = new Uint8Array(
  Buffer.from(
    'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGD4DwABBAEAX+XDSwAAAABJRU5ErkJggg==',
    'base64',
  ),
);

const once = { maxRetries: 0 };
const steps = { ...once, stopWhen: isStepCount(5) };
const kinds = (result) => result.steps.map((step) => step.content.map((part) => part.type));

async function both(prefix, provider) {
  await turn(`${prefix}-generate-text`, async (model) => {
    const result = await generateText({
      ...once,
      model: provider(model),
      instructions: 'Be short.',
      prompt: 'Say hello.',
    });
    const { text, finishReason, usage, warnings } = result;
    return { text, finishReason, usage, warnings };
  });

  await turn(`${prefix}-stream-text`, async (model) => {
    const result = streamText({ ...once, model: provider(model), prompt: 'Say hello.' });
    const pieces = await all(result.textStream);
    return { pieces, text: await result.text, finishReason: await result.finishReason };
  });

  await turn(`${prefix}-cut-off`, async (model) => {
    const errors = [];
    const onError = ({ error }) => errors.push(error);
    const result = streamText({ ...once, model: provider(model), prompt: 'Say hello.', onError });
    const pieces = await all(result.textStream);
    return { pieces, errors, finishReason: await result.finishReason };
  });

  await turn(`${prefix}-tool-loop`, async (model) => {
    const result = await generateText({
      ...steps,
      model: provider(model),
      tools: { weather },
      prompt: 'The weather in Rome and in Oslo?',
    });
    return { text: result.text, kinds: kinds(result) };
  });

  await turn(`${prefix}-stream-tool-loop`, async (model) => {
    const result = streamText({
      ...steps,
      model: provider(model),
      tools: { weather },
      prompt: 'The weather in Rome?',
    });
    const parts = await all(result.stream);
    const errors = parts.filter((part) => part.type === 'error').map((part) => String(part.error));
    return { text: await result.text, calls: (await result.steps)[0].toolCalls, errors };
  });

  await turn(`${prefix}-output-object`, async (model) => {
    const result = await generateText({
      ...once,
      model: provider(model),
      output: Output.object({ schema: Person }),
      prompt: 'Invent a person.',
    });
    return result.output;
  });

  await turn(`${prefix}-generate-object`, async (model) => {
    const result = await generateObject({
      ...once,
      model: provider(model),
      schema: Person,
      prompt: 'Invent a person.',
    });
    return result.object;
  });

  await turn(`${prefix}-image`, async (model) => {
    const result = await generateText({
      ...once,
      model: provider(model),
      messages: [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'Which shape is this?' },
            { type: 'file', data: image, mediaType: 'image/png' },
          ],
        },
      ],
    });
    return result.text;
  });

  for (const name of ['upstream-error', 'unknown-model']) {
    await turn(`${prefix}-${name}`, async (model) => {
      try {
        await generateText({ ...once, model: provider(model), prompt: 'Hello.' });
      } catch (error) {
        const { name, statusCode, message, responseBody } = error;
        return { name, status: statusCode, message, body: JSON.parse(responseBody).error };
      }
      return null;
    });
  }
}

await both('openai', (model) => openai.responses(model));
await both('open', (model) => openResponses(model));

// Reasoning: what the model thought is shown, and goes back with the call.
await turn('openai-reasoning', async (model) => {
  const result = streamText({
    ...steps,
    model: openai.responses(model),
    tools: { weather },
    prompt: 'The weather in Rome?',
    providerOptions: {
      openai: { forceReasoning: true, reasoningEffort: 'low', reasoningSummary: 'auto' },
    },
  });
  await all(result.stream);
  const [first] = await result.steps;
  return { thought: first.reasoningText, text: await result.text };
});

await turn('open-reasoning', async (model) => {
  const result = streamText({
    ...steps,
    model: openResponses(model),
    tools: { weather },
    prompt: 'The weather in Rome?',
    providerOptions: { antiphon: { reasoningEffort: 'low', reasoningSummary: 'auto' } },
  });
  await all(result.stream);
  const [first] = await result.steps;
  return { thought: first.reasoningText, text: await result.text };
});

// What only @ai-sdk/openai has.
await turn('openai-previous-response', async (model) => {
  const first = await generateText({
    ...once,
    model: openai.responses(model),
    prompt: 'My name is Ada.',
  });
  const previousResponseId = first.providerMetadata.openai.responseId;
  const second = await generateText({
    ...once,
    model: openai.responses(model),
    prompt: 'What is my name?',
    providerOptions: { openai: { previousResponseId } },
  });
  return { id: previousResponseId, text: second.text };
});

await turn('openai-no-store', async (model) => {
  const result = await generateText({
    ...steps,
    model: openai.responses(model),
    tools: { weather },
    prompt: 'The weather in Rome?',
    providerOptions: {
      openai: {
        store: false,
        forceReasoning: true,
        reasoningEffort: 'low',
        reasoningSummary: 'auto',
        include: ['reasoning.encrypted_content'],
      },
    },
  });
  return { text: result.text, kinds: kinds(result) };
});

await turn('openai-custom-tool', async (model) => {
  const heard = [];
  const sums = openai.tools.customTool({
    description: 'Works out a sum.',
    format: { type: 'grammar', syntax: 'regex', definition: '[0-9]+( [+*] [0-9]+)*' },
    execute: async (input) => {
      heard.push(input);
      return '5';
    },
  });
  const result = await generateText({
    ...steps,
    model: openai.responses(model),
    tools: { sums },
    prompt: 'What is 2 + 3?',
  });
  return { text: result.text, heard };
});

await turn('openai-shell', async (model) => {
  const heard = [];
  const shell = openai.tools.shell({
    execute: async ({ action }) => {
      heard.push(action.commands);
      const outcome = { type: 'exit', exitCode: 0 };
      return { output: [{ stdout: 'notes.txt', stderr: '', outcome }] };
    },
  });
  const result = await generateText({
    ...steps,
    model: openai.responses(model),
    tools: { shell },
    prompt: 'Which files are there?',
  });
  return { text: result.text, heard };
});

await turn('openai-local-shell', async (model) => {
  const heard = [];
  const local_shell = openai.tools.localShell({
    execute: async ({ action }) => {
      heard.push(action.command);
      return { output: 'notes.txt' };
    },
  });
  const result = await generateText({
    ...steps,
    model: openai.responses(model),
    tools: { local_shell },
    prompt: 'Which files are there?',
  });
  return { text: result.text, heard };
});

await turn('openai-apply-patch', async (model) => {
  const done = [];
  const apply_patch = openai.tools.applyPatch({
    execute: async ({ operation }) => {
      done.push(operation);
      return { status: 'completed', output: `did ${operation.path}` };
    },
  });
  const result = await generateText({
    ...steps,
    model: openai.responses(model),
    tools: { apply_patch },
    prompt: 'Write the notes.',
  });
  return { text: result.text, done };
});

// Streamed, the pieces of an input make the whole of it.
async function streamed(model, tools, prompt) {
  const result = streamText({ ...steps, model: openai.responses(model), tools, prompt });
  const parts = await all(result.stream);
  const inputs = parts.filter((part) => part.type === 'tool-input-delta').map((part) => part.delta);
  const errors = parts.filter((part) => part.type === 'error').map((part) => String(part.error));
  return { text: await result.text, input: inputs.join(''), errors };
}

await turn('openai-stream-custom-tool', (model) =>
  streamed(
    model,
    { sums: openai.tools.customTool({ description: 'Works it out.', execute: async () => '5' }) },
    'What is 2 + 3?',
  ),
);

await turn('openai-stream-shell', (model) => {
  const outcome = { type: 'exit', exitCode: 0 };
  const output = [{ stdout: 'notes.txt', stderr: '', outcome }];
  return streamed(
    model,
    { shell: openai.tools.shell({ execute: async () => ({ output }) }) },
    'Which files are there?',
  );
});

await turn('openai-stream-apply-patch', (model) => {
  const execute = async ({ operation }) => ({ status: 'completed', output: `did ${operation.path}` });
  return streamed(model, { apply_patch: openai.tools.applyPatch({ execute }) }, 'Write the notes.');
});

await turn('openai-tool-search', async (model) => {
  const heard = [];
  const toolSearch = openai.tools.toolSearch({
    execution: 'client',
    description: 'Finds further tools.',
    parameters: {
      type: 'object',
      properties: { goal: { type: 'string' } },
      required: ['goal'],
      additionalProperties: false,
    },
    execute: async ({ arguments: wanted }) => {
      heard.push(wanted);
      const parameters = {
        type: 'object',
        properties: { city: { type: 'string' } },
        required: ['city'],
        additionalProperties: false,
      };
      const found = { type: 'function', name: 'weather', description: 'The weather in a city.' };
      return { tools: [{ ...found, deferLoading: true, parameters }] };
    },
  });
  const deferred = { ...weather, providerOptions: { openai: { deferLoading: true } } };
  const result = await generateText({
    ...steps,
    model: openai.responses(model),
    tools: { toolSearch, weather: deferred },
    prompt: 'The weather in Rome?',
  });
  return { text: result.text, heard };
});

tell();
