/* SPDX-License-Identifier: Apache-2.0 */
/*
 * models.h - well-known networks by name, for commands that ask how large a
 * model is.  The numbers are trainable parameters; gradients are fp32.  BERT is
 * the pretraining model, its decoder tied to the embedding.
 */
#ifndef TALLY_CLI_MODELS_H
#define TALLY_CLI_MODELS_H

#define MODEL_BYTES_PER_PARAMETER 4u

/*  name		parameters */
#define MODEL_TABLE(X) \
	X("resnet18",	  11689512) \
	X("resnet34",	  21797672) \
	X("resnet50",	  25557032) \
	X("resnet101",	  44549160) \
	X("resnet152",	  60192808) \
	X("vgg16",	 138357544) \
	X("vgg19",	 143667240) \
	X("bert-base",	 110106428) \
	X("bert-large",	 336226108) \
	X("gpt2",	 124439808) \
	X("gpt2-medium", 354823168) \
	X("gpt2-large",	 774030080) \
	X("gpt2-xl",	1557611200)

#endif
